//! Dead letters as a test wants them.

use std::fmt::Display;

use outbox::FailureReason;
use outbox::testing::store::{Death, Lease};

use crate::db::Db;

/// The time so many seconds ago, in the database's SQL.
pub fn ago(db: &Db, seconds: impl Display) -> String {
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

/// Open letters of a queue with the original id `n`, and with this text of `n` in SQL as their
/// payload; the first is the oldest, a second apart.
pub async fn plant(db: &Db, queue: &str, count: u32, payload: &str) {
    let (failed, series) = (ago(db, format!("{count} - n + 1")), series(db, count));
    let payload = if db.is_postgres() {
        format!("convert_to({payload}, 'UTF8')")
    } else {
        format!("CAST({payload} AS BLOB)")
    };
    db.exec(format!(
        "INSERT INTO outbox_dlq (original_id, queue, payload, headers, deliveries_count, \
            created_at, failed_at, failure_reason, last_exception, error_kind) \
         SELECT n, '{queue}', {payload}, '{{\"tenant\": \"acme\"}}', 3, {failed}, {failed}, \
            'retry_terminal', 'order ' || n || ' is broken', 'OrderError' FROM {series}"
    ))
    .await;
}

/// The letter of the row with this id.
pub async fn id_of(db: &Db, original: i64) -> i64 {
    db.int(format!("SELECT id FROM outbox_dlq WHERE original_id = {original}")).await
}

/// Makes a row a letter.
pub fn death(lease: Lease) -> Death<'static> {
    let reason = FailureReason::Rejected;
    Death { lease, reason, error_kind: None, last_exception: None, note: None, fingerprint: None }
}
