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
mod pages;
#[path = "../cli/program.rs"]
#[allow(dead_code)] // the command line needs more of it
mod program;
mod replay;
mod transaction;
mod triggers;

use outbox::dlq::DeadLetters;
use outbox_tests::db::Db;

/// What an operator has.
fn letters(db: &Db) -> DeadLetters {
    outbox_tests::roles::operator(db, db.names.clone()).dead_letters()
}

/// The time so many seconds ago, in the database's SQL.
fn ago(db: &Db, seconds: impl std::fmt::Display) -> String {
    if db.is_postgres() {
        format!("statement_timestamp() - ({seconds}) * interval '1 second'")
    } else {
        format!("CAST(unixepoch('subsec') * 1000000 AS INTEGER) - ({seconds}) * 1000000")
    }
}

/// Numbers from 1, as a table `series(n)`.
fn series(db: &Db, count: u32) -> String {
    if db.is_postgres() {
        format!("generate_series(1, {count}) AS series(n)")
    } else {
        format!(
            "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count}) \
             SELECT n FROM s) AS series"
        )
    }
}

/// Open letters of a queue with the payload `n` and the original id `n`; the first is
/// the oldest, a second apart.
async fn plant(db: &Db, queue: &str, count: u32) {
    let (payload, failed) = if db.is_postgres() {
        ("convert_to(n::text, 'UTF8')", ago(db, format!("{count} - n + 1")))
    } else {
        ("CAST(CAST(n AS TEXT) AS BLOB)", ago(db, format!("{count} - n + 1")))
    };
    db.exec(format!(
        "INSERT INTO outbox_dlq (original_id, queue, payload, headers, deliveries_count, \
            created_at, failed_at, failure_reason, last_exception, error_kind) \
         SELECT n, '{queue}', {payload}, '{{\"tenant\": \"acme\"}}', 3, {failed}, {failed}, \
            'retry_terminal', 'order ' || n || ' is broken', 'OrderError' FROM {}",
        series(db, count)
    ))
    .await;
}
