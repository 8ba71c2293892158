//! Publishing: statements that run in the caller's transaction, or in one that was lent. Each
//! publish also tells the watchers of this process that a commit is probably near: see `listen`.

use std::collections::HashMap;

use serde_json::json;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Executor as _, Row as _, Sqlite};

use super::claim::read;
use super::connect::is_busy;
use super::{listen, query};
use crate::error::StoreError;
use crate::hex::hex;
use crate::message::Row;
use crate::message::row::{delay_micros, to_micros};
use crate::publish::sealed::{self, On};
use crate::publish::{Due, Prepared, Published, left_out, unwritten};
use crate::store::{CLAIM_BYTES, statements};

statements! {
    pub(crate) struct PublishSql {
        insert, extend_timer, timer_kept, insert_batch, timer_held, cancel_timer, pending, ack,
        extend,
    }
}

/// An absolute time or a delay, in microseconds.
fn due(due: Due) -> (Option<i64>, i64) {
    match due {
        Due::Now => (None, 0),
        Due::In(delay) => (None, delay_micros(delay)),
        Due::At(time) => (Some(to_micros(time)), 0),
    }
}

/// Makes SQLite look whether the tables are still as this connection knows them.
const LOOK: &str = "SELECT 0 FROM sqlite_schema WHERE 0";

/// Whether the index of timer names is missing, or another connection made it since this one
/// looked. After most errors SQLite looks again by itself, but not after this one.
fn misses_an_index(error: &sqlx::Error) -> bool {
    let database = error.as_database_error();
    database.is_some_and(|error| error.message().starts_with("ON CONFLICT clause does not match"))
}

/// For `map_err` on a statement in the caller's transaction, which may have begun as one that
/// reads.
pub(super) fn failed(action: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    const BEGUN: &str = "begin a transaction that writes with `outbox::sqlite::begin(&pool)`: it \
        waits for other writers, which a transaction that has read cannot do";
    move |error| {
        if is_busy(&error) {
            return StoreError::explained(action, error, Some(BEGUN));
        }
        StoreError::of(action)(error)
    }
}

/// Publishes one message in a transaction: the caller's, or that of an ack.
pub(crate) async fn insert(
    connection: &mut SqliteConnection,
    sql: &PublishSql,
    message: &Prepared,
) -> Result<Published, StoreError> {
    let (at, delay) = due(message.due);
    let bound = |text| {
        query(text)
            .bind(message.queue.clone())
            .bind(message.payload.to_vec())
            .bind(message.headers.clone())
            .bind(at)
            .bind(delay)
            .bind(message.timer_id.clone())
    };
    listen::published();
    let mut row = bound(&sql.insert).fetch_optional(&mut *connection).await;
    if row.as_ref().is_err_and(misses_an_index) {
        connection.execute(LOOK).await.map_err(failed("publish"))?;
        row = bound(&sql.insert).fetch_optional(&mut *connection).await;
    }
    if let Some(row) = row.map_err(failed("publish"))? {
        return Ok(Published::Inserted(row.get(0)));
    }
    if message.timer_id.is_none() || !message.extend {
        return unwritten(message.timer_id.is_some(), "publish");
    }
    let kept = bound(&sql.timer_kept).fetch_optional(&mut *connection).await;
    if let Some(row) = kept.map_err(failed("look for a timer"))? {
        return Ok(Published::Kept(row.get(0)));
    }
    let moved = bound(&sql.extend_timer).fetch_optional(connection).await;
    let moved = moved.map_err(failed("extend a timer"))?;
    Ok(moved.map_or(Published::Duplicate, |row| Published::Extended(row.get(0))))
}

/// Publishes many messages in a transaction: the caller's, or that of an ack.
pub(crate) async fn insert_batch(
    connection: &mut SqliteConnection,
    sql: &PublishSql,
    messages: &[&Prepared],
) -> Result<Vec<Published>, StoreError> {
    if messages.iter().map(|message| message.bytes()).sum::<usize>() > CLAIM_BYTES {
        // As JSON they would take several times their size, and SQLite takes no text of 1 GB.
        let mut published = Vec::with_capacity(messages.len());
        for message in messages {
            published.push(insert(connection, sql, message).await?);
        }
        return Ok(published);
    }
    let batch: serde_json::Value = messages.iter().copied().map(as_json).collect();
    listen::published();
    let bound = || query(&sql.insert_batch).bind(batch.to_string());
    let mut rows = bound().fetch_all(&mut *connection).await;
    if rows.as_ref().is_err_and(misses_an_index) {
        connection.execute(LOOK).await.map_err(failed("publish a batch"))?;
        rows = bound().fetch_all(&mut *connection).await;
    }
    let rows = rows.map_err(failed("publish a batch"))?;
    // The ids of messages without a timer name come in the order of the batch.
    let mut plain: Vec<i64> = Vec::new();
    let mut timers: HashMap<(String, String), i64> = HashMap::new();
    for row in &rows {
        match row.get::<Option<String>, _>(2) {
            None => plain.push(row.get(0)),
            Some(timer_id) => {
                timers.insert((row.get(1), timer_id), row.get(0));
            }
        }
    }
    plain.sort_unstable();
    let mut plain = plain.into_iter();
    let mut published = Vec::with_capacity(messages.len());
    for &message in messages {
        let id = match &message.timer_id {
            None => plain.next(),
            Some(timer_id) => timers.remove(&(message.queue.clone(), timer_id.clone())),
        };
        published.push(match id {
            Some(id) => Published::Inserted(id),
            None if message.timer_id.is_some() && message.extend => {
                insert(&mut *connection, sql, message).await?
            }
            None => unwritten(message.timer_id.is_some(), "publish a batch")?,
        });
    }
    Ok(published)
}

/// Publishes what handlers returned. They are not told of a duplicate, so it has to be a real one.
/// A timer that is not written, and whose name nobody holds, would be lost with the row that
/// returned it.
pub(super) async fn insert_returned(
    connection: &mut SqliteConnection,
    sql: &PublishSql,
    messages: &[&Prepared],
) -> Result<Vec<Published>, StoreError> {
    let published = insert_batch(&mut *connection, sql, messages).await?;
    for (message, published) in messages.iter().zip(&published) {
        if *published == Published::Duplicate && !holds_timer(connection, sql, message).await? {
            return Err(left_out("ack and publish"));
        }
    }
    Ok(published)
}

async fn holds_timer(
    connection: &mut SqliteConnection,
    sql: &PublishSql,
    message: &Prepared,
) -> Result<bool, StoreError> {
    let held = query(&sql.timer_held)
        .bind(message.queue.clone())
        .bind(message.timer_id.clone())
        .bind(message.extend);
    let held = held.fetch_optional(connection).await.map_err(failed("look for a timer"))?;
    Ok(held.is_some())
}

impl sealed::Transaction for sqlx::Transaction<'_, Sqlite> {
    fn on(&mut self) -> On<'_> {
        On::Sqlite(self)
    }
}

pub(crate) async fn cancel_timer(
    connection: &mut SqliteConnection,
    sql: &PublishSql,
    queue: &str,
    timer_id: &str,
) -> Result<bool, StoreError> {
    let statement = query(&sql.cancel_timer).bind(queue.to_owned()).bind(timer_id.to_owned());
    let done = statement.execute(connection).await.map_err(failed("cancel a timer"))?;
    Ok(done.rows_affected() > 0)
}

pub(crate) async fn holds_timers(
    connection: &mut SqliteConnection,
    sql: &PublishSql,
    timers: &[&Prepared],
) -> Result<Vec<bool>, StoreError> {
    let mut held = Vec::with_capacity(timers.len());
    for timer in timers {
        held.push(holds_timer(connection, sql, timer).await?);
    }
    Ok(held)
}

fn as_json(message: &Prepared) -> serde_json::Value {
    let (at, delay) = due(message.due);
    json!({
        "queue": message.queue, "payload": hex(&message.payload), "headers": message.headers,
        "at": at, "delay": delay, "timer_id": message.timer_id,
    })
}

impl sealed::Connection for SqliteConnection {
    async fn pending(
        &mut self,
        statements: &sealed::Statements,
        queue: &str,
        limit: i64,
    ) -> Result<Vec<Row>, StoreError> {
        let statement = query(&statements.sqlite.pending).bind(queue.to_owned()).bind(limit);
        let rows = statement.fetch_all(self).await;
        rows.and_then(|rows| rows.iter().map(read).collect())
            .map_err(StoreError::of("read pending rows"))
    }
}
