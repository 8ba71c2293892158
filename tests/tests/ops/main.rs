//! What operators see and do, through the library, on both databases.

mod pause;
mod pause_load;
mod peek;
mod publish;
mod queues;
mod sample;
mod why;
mod why_absent;
mod why_leased;
mod why_locked;
mod why_readers;

use outbox::ops::Operator;
use outbox_tests::db::Db;

/// For the tables of this database.
fn operator(db: &Db) -> Operator {
    outbox_tests::roles::operator(db, db.names.clone())
}

/// SQL for this long ago, in either database.
fn ago(db: &Db, seconds: u32) -> String {
    if db.is_postgres() {
        format!("clock_timestamp() - interval '{seconds} seconds'")
    } else {
        format!("CAST((unixepoch('subsec') - {seconds}) * 1000000 AS INTEGER)")
    }
}

/// Leases a row as a claim does, so many seconds ago.
async fn lease(db: &Db, id: i64, seconds: u32) {
    let at = ago(db, seconds);
    let token = if db.is_postgres() { "gen_random_uuid()" } else { "randomblob(16)" };
    let lease = format!("acquired_token = {token}, acquired_at = {at}, deliveries_count = 1");
    db.exec(format!("UPDATE outbox SET {lease} WHERE id = {id}")).await;
}

/// A dead letter as the engine writes it.
async fn letter(db: &Db, queue: &str, original_id: i64) -> i64 {
    let payload = if db.is_postgres() { "'\\x37'" } else { "x'37'" };
    let at = ago(db, 5);
    db.int(format!(
        "INSERT INTO outbox_dlq (original_id, queue, payload, deliveries_count, created_at,
             failure_reason, error_kind)
         VALUES ({original_id}, '{queue}', {payload}, 3, {at}, 'rejected', 'shop::Refused')
         RETURNING id"
    ))
    .await
}
