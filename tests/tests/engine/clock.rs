//! Times as the database sees them.

use std::time::Duration;

use outbox_tests::db::Db;
use tokio::time::Instant;

/// A difference of two columns or times of a row, in microseconds.
async fn between(db: &Db, id: i64, from: &str, to: &str) -> i64 {
    let [from, to] = [from, to].map(|time| match (time, db.is_postgres()) {
        ("now", true) => "clock_timestamp()",
        ("now", false) => "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
        (column, _) => column,
    });
    let micros = if db.is_postgres() {
        format!("(extract(epoch FROM {to} - {from}) * 1000000)::bigint")
    } else {
        format!("{to} - {from}")
    };
    db.int(format!("SELECT {micros} FROM outbox WHERE id = {id}")).await
}

/// How long after its due time the row was claimed; negative if before.
pub async fn claimed_after_due(db: &Db, id: i64) -> i64 {
    between(db, id, "next_attempt_at", "acquired_at").await
}

/// How long the row has been due.
pub async fn late(db: &Db, id: i64) -> Duration {
    let micros = between(db, id, "next_attempt_at", "now").await;
    Duration::from_micros(u64::try_from(micros).expect("the row is due"))
}

/// How long after its publication the row is due.
pub async fn delay(db: &Db, id: i64) -> Duration {
    let micros = between(db, id, "created_at", "next_attempt_at").await;
    Duration::from_micros(u64::try_from(micros).expect("the row is not due before it exists"))
}

/// Half of the times are no longer than this: a busy machine spoils single ones.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// What a busy machine adds to that which is to happen at once: three times what a publish
/// and a look at the table take by themselves.
pub async fn slack(db: &Db) -> Duration {
    let mut took = Vec::new();
    for n in 0..7 {
        let begun = Instant::now();
        db.publish("nobody", n).await;
        db.rows().await;
        took.push(begun.elapsed());
    }
    db.exec("DELETE FROM outbox WHERE queue = 'nobody'").await;
    3 * median(took)
}
