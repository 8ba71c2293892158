//! What the examples share: a database that goes away, and the end of the work.

mod scratch;

use std::time::Duration;

pub use scratch::Scratch;
use sqlx::SqlitePool;

/// Ready when no message is left, or after 8 s: an example ends by itself.
pub async fn no_message_left(pool: &SqlitePool) {
    let empty = async {
        while !matches!(left(pool).await, Ok(0)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(8), empty).await;
}

/// How many messages wait or are being handled.
pub async fn left(pool: &SqlitePool) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT count(*) FROM outbox").fetch_one(pool).await
}
