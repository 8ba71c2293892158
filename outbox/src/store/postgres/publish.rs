//! Publishing: statements that run in the caller's transaction, or in one that was lent. The
//! statement that inserts a message also notifies the subscribers that sleep: see `sleepers`.

use std::collections::HashMap;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::TryStreamExt as _;
use sqlx::postgres::{PgConnection, PgRow, Postgres};
use sqlx::{Connection as _, Row as _};

use super::claim::read;
use super::sleepers::{Locks, notified};
use super::time::PgTime;
use super::{Statement, query};
use crate::error::StoreError;
use crate::message::Row;
use crate::message::row::delay_micros;
use crate::publish::sealed::{self, On};
use crate::publish::{Due, Prepared, Published, in_lock_order, left_out, unwritten};
use crate::store::names::TableNames;
use crate::store::statements;

statements! {
    pub(super) struct Sql {
        insert, insert_due, insert_timer, insert_timer_extend, insert_batch,
        insert_batch_queues, insert_batch_timers, insert_batch_mixed, timers_held, cancel_timer,
        pending, ack,
    }
}

/// What a publisher sends to PostgreSQL.
pub(crate) struct PublishSql {
    pub(super) sql: Sql,
    /// Where it notifies, if ever.
    channel: Option<String>,
    /// The locks that sleepers hold, if publishers ask for them.
    locks: Option<Locks>,
    /// Whether its statements are named, on whichever connection they run.
    prepared: AtomicBool,
}

impl PublishSql {
    pub(crate) fn new(names: &TableNames) -> Self {
        let (channel, locks) = notified(names);
        Self { sql: Sql::new(names), channel, locks, prepared: names.is_prepared().into() }
    }

    fn query(&self, text: &Arc<str>) -> Statement {
        query(text).persistent(self.is_prepared())
    }

    /// A statement. If it looks for timers, it reads the table before it writes, and is not kept: a
    /// plan that was made for an empty table reads all of a large one for each timer, and the
    /// caller's connection would keep that plan.
    fn query_for(&self, text: &Arc<str>, looks: bool) -> Statement {
        query(text).persistent(self.is_prepared() && !looks)
    }

    pub(super) fn is_prepared(&self) -> bool {
        self.prepared.load(Ordering::Relaxed)
    }

    /// After a named statement. On a connection that keeps none (`statement_cache_capacity(0)`)
    /// sqlx would leave every one on the server, so no further one is named. One that failed may
    /// not have been prepared.
    pub(super) fn kept<T>(&self, connection: &PgConnection, sent: &Result<T, sqlx::Error>) {
        if self.is_prepared() && sent.is_ok() && connection.cached_statements_size() == 0 {
            self.prepared.store(false, Ordering::Relaxed);
        }
    }
}

impl Due {
    pub(super) fn at(self) -> Option<PgTime> {
        if let Self::At(time) = self { Some(PgTime(time)) } else { None }
    }

    pub(super) fn delay(self) -> i64 {
        if let Self::In(delay) = self { delay_micros(delay) } else { 0 }
    }
}

impl sealed::Transaction for sqlx::Transaction<'_, Postgres> {
    fn on(&mut self) -> On<'_> {
        On::Postgres(self)
    }
}

const BATCH: &str = "publish a batch";

pub(crate) async fn insert(
    connection: &mut PgConnection,
    own: &PublishSql,
    message: &Prepared,
) -> Result<Published, StoreError> {
    let PublishSql { sql, channel, locks, .. } = own;
    let lock = locks.map(|locks| locks.of_queue(&message.queue));
    let is_timer = message.timer_id.is_some();
    let at_once = !is_timer && message.due == Due::Now;
    let text = match (&message.timer_id, message.extend) {
        (None, _) if at_once => &sql.insert,
        (None, _) => &sql.insert_due,
        (Some(_), false) => &sql.insert_timer,
        (Some(_), true) => &sql.insert_timer_extend,
    };
    let mut statement = own
        .query_for(text, is_timer && message.extend)
        .bind(&*message.queue)
        .bind(&*message.payload)
        .bind(&*message.headers)
        .bind(channel.as_deref())
        .bind(lock);
    if !at_once {
        statement = statement.bind(message.due.at()).bind(message.due.delay());
    }
    if let Some(timer_id) = &message.timer_id {
        statement = statement.bind(&**timer_id);
    }
    let row = statement.fetch_optional(&mut *connection).await;
    if !(is_timer && message.extend) {
        own.kept(connection, &row);
    }
    let row = row.map_err(StoreError::of("publish"))?;
    let Some(row) = row else { return unwritten(is_timer, "publish") };
    published(&row, 1).map_err(StoreError::of("publish"))
}

pub(crate) async fn insert_batch(
    connection: &mut PgConnection,
    own: &PublishSql,
    messages: &[&Prepared],
) -> Result<Vec<Published>, StoreError> {
    let PublishSql { sql, channel, locks, .. } = own;
    let Some(first) = messages.first() else { return Ok(Vec::new()) };
    let like_first =
        |m: &Prepared| m.timer_id.is_none() && m.queue == first.queue && m.due == first.due;
    let ids = if messages.iter().all(|one| like_first(one)) {
        let statement = own
            .query(&sql.insert_batch)
            .bind(&*first.queue)
            .bind(messages.iter().map(|m| &*m.payload).collect::<Vec<_>>())
            .bind(messages.iter().map(|m| &*m.headers).collect::<Vec<_>>())
            .bind(first.due.at())
            .bind(first.due.delay())
            .bind(channel.as_deref())
            .bind(locks.map(|locks| locks.of_queue(&first.queue)));
        // Read as they come: a row for each id is larger than the id.
        let ids = statement.fetch(&mut *connection).and_then(|row| ready(row.try_get::<i64, _>(0)));
        let ids = ids.try_collect().await;
        own.kept(connection, &ids);
        ids
    } else {
        let timers = messages.iter().any(|m| m.timer_id.is_some());
        let extend = messages.iter().any(|m| m.extend);
        let text = match (timers, extend) {
            (false, _) => &sql.insert_batch_queues,
            (true, false) => &sql.insert_batch_timers,
            (true, true) => &sql.insert_batch_mixed,
        };
        let mut sent = messages.to_vec();
        in_lock_order(&mut sent, |message| message.named());
        let statement = own
            .query_for(text, extend)
            .bind(sent.iter().map(|m| &*m.queue).collect::<Vec<_>>())
            .bind(sent.iter().map(|m| &*m.payload).collect::<Vec<_>>())
            .bind(sent.iter().map(|m| &*m.headers).collect::<Vec<_>>())
            .bind(sent.iter().map(|m| m.due.at()).collect::<Vec<_>>())
            .bind(sent.iter().map(|m| m.due.delay()).collect::<Vec<_>>())
            .bind(channel.as_deref())
            .bind(locks.map(|locks| locks.start));
        if timers {
            let names = sent.iter().map(|m| m.timer_id.as_deref());
            let mut statement = statement.bind(names.collect::<Vec<_>>());
            if extend {
                let extend = sent.iter().map(|m| m.extend);
                statement = statement.bind(extend.collect::<Vec<_>>());
            }
            let rows = statement.fetch_all(&mut *connection).await;
            if !extend {
                own.kept(connection, &rows);
            }
            return in_order(messages, &rows.map_err(StoreError::of(BATCH))?);
        }
        let row = statement.fetch_one(&mut *connection).await;
        own.kept(connection, &row);
        row.and_then(|row| row.try_get::<Option<_>, _>(0)).map(Option::unwrap_or_default)
    };
    inserted(ids.map_err(StoreError::of(BATCH))?, messages.len())
}

pub(crate) async fn cancel_timer(
    connection: &mut PgConnection,
    own: &PublishSql,
    queue: &str,
    timer_id: &str,
) -> Result<bool, StoreError> {
    let statement = own.query_for(&own.sql.cancel_timer, true);
    let row = statement.bind(queue.to_owned()).bind(timer_id.to_owned());
    let row = row.fetch_optional(&mut *connection).await;
    Ok(row.map_err(StoreError::of("cancel a timer"))?.is_some())
}

pub(crate) async fn holds_timers(
    connection: &mut PgConnection,
    own: &PublishSql,
    timers: &[&Prepared],
) -> Result<Vec<bool>, StoreError> {
    let row = own
        .query_for(&own.sql.timers_held, true)
        .bind(timers.iter().map(|timer| &*timer.queue).collect::<Vec<_>>())
        .bind(timers.iter().map(|timer| timer.timer_id.as_deref()).collect::<Vec<_>>())
        .bind(timers.iter().map(|timer| timer.extend).collect::<Vec<_>>())
        .fetch_one(connection)
        .await;
    row.and_then(|row| row.try_get(0)).map_err(StoreError::of("look for timers"))
}

impl sealed::Connection for PgConnection {
    async fn pending(
        &mut self,
        statements: &sealed::Statements,
        queue: &str,
        limit: i64,
    ) -> Result<Vec<Row>, StoreError> {
        let own = &statements.postgres;
        let statement = own.query(&own.sql.pending).bind(queue.to_owned()).bind(limit);
        let rows = statement.fetch_all(&mut *self).await;
        own.kept(self, &rows);
        rows.and_then(|rows| rows.iter().map(read).collect())
            .map_err(StoreError::of("read pending rows"))
    }
}

fn published(row: &PgRow, fresh: usize) -> Result<Published, sqlx::Error> {
    let id = row.try_get(0)?;
    Ok(match row.try_get(fresh)? {
        Some(true) => Published::Inserted(id),
        Some(false) => Published::Extended(id),
        None => Published::Kept(id),
    })
}

/// The ids of messages without timers, in the order of the batch. The ids were drawn in that order.
fn inserted(mut ids: Vec<i64>, messages: usize) -> Result<Vec<Published>, StoreError> {
    if ids.len() < messages {
        return Err(left_out(BATCH));
    }
    ids.sort_unstable();
    Ok(ids.into_iter().map(Published::Inserted).collect())
}

/// Matches returned rows to messages: by name where there is a timer, and by order where there is
/// none, because ids are drawn in the order of the batch.
fn in_order(messages: &[&Prepared], rows: &[PgRow]) -> Result<Vec<Published>, StoreError> {
    let failed = StoreError::of(BATCH);
    let mut plain = Vec::new();
    let mut timers = HashMap::new();
    for row in rows {
        let result = published(row, 3).map_err(&failed)?;
        match row.try_get::<Option<String>, _>(2).map_err(&failed)? {
            Some(timer_id) => {
                let queue: String = row.try_get(1).map_err(&failed)?;
                timers.insert((queue, timer_id), result);
            }
            None => plain.push(result),
        }
    }
    let mut plain = plain.into_iter();
    let each = messages.iter().map(|message| {
        let result = match &message.timer_id {
            None => plain.next(),
            Some(timer_id) => timers.remove(&(message.queue.clone(), timer_id.clone())),
        };
        result.map_or_else(|| unwritten(message.timer_id.is_some(), BATCH), Ok)
    });
    each.collect()
}
