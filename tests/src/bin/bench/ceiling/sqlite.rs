//! The bare loops over a SQLite file.
//!
//! The best form of a drain: one connection, because a file has one writer; a
//! thousand rows a transaction, taken by one UPDATE over an ordered subquery; and
//! what was handled is deleted by one statement at the head of the next claim's
//! transaction, so that a batch costs one commit. The rows' buffer is as long as a
//! batch, or the thread that runs SQLite would wait for the reader every fifty rows.

use anyhow::Result;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use uuid::Uuid;

use super::publish::headers;
use crate::db::QUEUE;
use crate::scenario::drain::Order;

const BATCH: i64 = 1000;

const CLAIM: &str = "UPDATE outbox
    SET acquired_token = ?1, acquired_at = CAST(unixepoch('subsec') * 1000000 AS INTEGER),
        deliveries_count = deliveries_count + 1
    WHERE id IN (
        SELECT id FROM outbox
        WHERE queue = ?2 AND next_attempt_at <= CAST(unixepoch('subsec') * 1000000 AS INTEGER)
          AND acquired_token IS NULL AND (next_attempt_at, id) > (?3, ?4)
        ORDER BY next_attempt_at, id
        LIMIT ?5)
    RETURNING id, payload, headers, next_attempt_at";

const DELETE: &str = "DELETE FROM outbox
    WHERE id IN (SELECT value FROM json_each(?1)) AND acquired_token = ?2";

const INSERT: &str = "INSERT INTO outbox (queue, payload, headers, created_at, next_attempt_at)
    VALUES (?1, ?2, ?3, CAST(unixepoch('subsec') * 1000000 AS INTEGER),
        CAST(unixepoch('subsec') * 1000000 AS INTEGER))";

pub async fn drain(options: SqliteConnectOptions) -> Result<u64> {
    let mut connection = options.row_buffer_size(1000).connect().await?;
    let (mut handled, mut floor) = (0, (i64::MIN, 0));
    let mut ids: Vec<i64> = Vec::new();
    let mut held = Uuid::nil();
    loop {
        let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
        if !ids.is_empty() {
            let settled = sqlx::query(DELETE).bind(serde_json::to_string(&ids)?).bind(held);
            handled += settled.execute(&mut *tx).await?.rows_affected();
            ids.clear();
        }
        held = Uuid::new_v4();
        let claim = sqlx::query(CLAIM).bind(held).bind(QUEUE).bind(floor.0).bind(floor.1);
        let rows = claim.bind(BATCH).fetch_all(&mut *tx).await?;
        tx.commit().await?;
        if rows.is_empty() {
            break;
        }
        for row in &rows {
            let order: Order = serde_json::from_slice(row.try_get::<&[u8], _>(1)?)?;
            std::hint::black_box((order, row.try_get::<&str, _>(2)?));
            let id = row.try_get(0)?;
            ids.push(id);
            floor = floor.max((row.try_get(3)?, id));
        }
    }
    connection.close().await?;
    Ok(handled)
}

/// One prepared statement, with nothing to read back.
pub async fn insert(connection: &mut SqliteConnection, order: &Order) -> Result<()> {
    let insert = sqlx::query(INSERT).bind(QUEUE).bind(serde_json::to_vec(order)?).bind(headers());
    insert.execute(connection).await?;
    Ok(())
}
