//! The known traps in earnest: a server that stops, stands still or turns back its clock,
//! messages that bring processes down, and a drain in the middle of each.
//! `traps.md` names the trap of every test.

mod blocking;
mod clock;
mod clock_of_file;
mod columns;
mod comeback;
mod connections;
mod crash;
mod deadlocks;
mod drain;
mod failover;
mod headers;
mod isolation;
mod letters;
mod limits;
mod listener;
mod log;
mod memory;
mod migrating;
mod no_room;
mod notify;
mod plans;
mod pooler;
mod prepared;
mod recovery;
mod releases;
mod rollback;
mod sqlite;
mod stopped;
mod texts;
mod transactions;
mod unlogged;
mod unread;
mod wal;
mod zone;

use std::time::Duration;

use outbox::Outgoing;
use outbox_tests::db::Db;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Often enough that nobody waits for a wake.
const OFTEN: Duration = Duration::from_millis(100);

/// Publishes these numbers, each in a transaction of its own.
async fn publish(db: &Db, queue: &str, numbers: impl IntoIterator<Item = i64>) {
    for n in numbers {
        db.send(Outgoing::new(queue, &n)).await;
    }
}
