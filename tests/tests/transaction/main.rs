//! Handlers that take the transaction in which their message is settled: all of
//! what they do commits with the ack, or none of it.

mod away;
mod batches;
mod broker;
mod extractors;
mod handlers;
mod hung;
mod layers;
mod lost;
mod order;
mod results;
mod timers;
mod turns;

use std::time::Duration;

use outbox_tests::db::Db;
use outbox_tests::wait::eventually;

const SECOND: Duration = Duration::from_secs(1);

/// The table of the handlers' own writes.
async fn with_domain(db: &Db) {
    db.exec("CREATE TABLE done (n bigint NOT NULL)").await;
}

async fn done(db: &Db) -> i64 {
    db.int("SELECT count(*) FROM done").await
}

/// Waits until all of the queue `q` are settled for good.
async fn settled(db: &Db) {
    eventually("all are settled", async || {
        db.int("SELECT count(*) FROM outbox WHERE queue = 'q'").await == 0
    })
    .await;
}

/// Messages that handlers published, in a queue that nobody reads.
async fn receipts(db: &Db) -> i64 {
    db.int("SELECT count(*) FROM outbox WHERE queue = 'receipts'").await
}
