//! Dead letters live on: read, replayed, resolved, ignored, purged, on both databases.

mod act;
mod canary;
mod dry_run;
#[path = "../counters/explain.rs"]
#[allow(dead_code)] // the counters need more of it
mod explain;
mod filters;
mod fingerprints;
mod groups;
mod lineage;
mod million;
mod months;
mod months_by_hand;
mod pages;
#[path = "../cli/program.rs"]
#[allow(dead_code)] // the command line needs more of it
mod program;
mod replay;
mod replay_locks;
mod transaction;
mod triggers;

use outbox::dlq::DeadLetters;
use outbox_tests::db::Db;

/// What an operator has.
fn letters(db: &Db) -> DeadLetters {
    outbox_tests::roles::operator(db, db.names.clone()).dead_letters()
}

/// Open letters of a queue with the payload `n` and the original id `n`; the first is
/// the oldest, a second apart.
async fn plant(db: &Db, queue: &str, count: u32) {
    outbox_tests::letters::plant(db, queue, count, "CAST(n AS TEXT)").await;
}
