//! The first rows of a queue.

use std::time::SystemTime;

use serde::Serialize;
use uuid::Uuid;

use super::payload::Payload;
use super::{Document, Operator, json, on_desk};
use crate::error::{Result, StoreError};
use crate::message::{Row, Stored};
use crate::publish::check_name;
use crate::redacted::debug_only;

/// How many bytes of a payload are read unless all are asked for.
const BYTES: u32 = 4096;

/// What [`Operator::peek`] reads.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeekOptions {
    /// How many rows at most; 10 by default.
    pub rows: u32,
    /// How many bytes of each payload at most; 4 KiB by default. `None` reads all of them.
    pub bytes: Option<u32>,
}

impl Default for PeekOptions {
    fn default() -> Self {
        Self { rows: 10, bytes: Some(BYTES) }
    }
}

impl PeekOptions {
    /// Reads at most this many rows.
    #[must_use]
    pub fn rows(self, rows: u32) -> Self {
        Self { rows, ..self }
    }

    /// Reads payloads to their ends.
    #[must_use]
    pub fn full(self) -> Self {
        Self { bytes: None, ..self }
    }
}

/// A row as an operator sees it. `Debug` prints the size of the payload, not the payload.
#[derive(Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Peeked {
    /// Its id.
    pub id: i64,
    /// Its queue.
    pub queue: String,
    /// When it is or was due.
    #[serde(serialize_with = "json::time")]
    pub due_at: SystemTime,
    /// When it was published.
    #[serde(serialize_with = "json::time")]
    pub created_at: SystemTime,
    /// Failed runs of the handler.
    pub attempts: u64,
    /// Claims of the row. A claim that was given back unstarted, snoozed or put off does not count.
    pub deliveries: u64,
    /// When its lease was taken or last extended; `None` if nobody holds it.
    #[serde(serialize_with = "json::maybe_time")]
    pub leased_at: Option<SystemTime>,
    /// Its lease token.
    pub token: Option<Uuid>,
    /// Its timer name.
    pub timer_id: Option<String>,
    /// Its headers as they are stored. A text that is not JSON is a JSON string here.
    pub headers: Document,
    /// Its payload, or the beginning of it.
    pub payload: Payload,
    /// Bytes of the whole payload.
    pub payload_bytes: u64,
    /// Whether the payload goes on.
    pub payload_cut: bool,
    /// When it was looked at, by the database's clock.
    #[serde(skip)]
    pub seen_at: SystemTime,
}

debug_only!(peeked: Peeked =>
    id, queue, due_at, attempts, deliveries, leased_at, timer_id, payload_bytes);

impl Peeked {
    pub(crate) fn of(row: Row, size: u64, seen_at: SystemTime) -> Self {
        let headers = row.headers.map(Stored::into_text);
        let shown = headers.map(|it| Document::of(&it).unwrap_or_else(|| Document::text(&it)));
        Self {
            id: row.id,
            due_at: row.next_attempt_at,
            created_at: row.created_at,
            attempts: row.attempts_count,
            deliveries: row.deliveries_count,
            leased_at: row.acquired_at,
            token: row.acquired_token,
            timer_id: row.timer_id,
            headers: shown.unwrap_or_default(),
            payload: Payload::of(&row.payload, size),
            payload_bytes: size,
            payload_cut: (row.payload.len() as u64) < size,
            queue: row.queue,
            seen_at,
        }
    }
}

impl Operator {
    /// Reads the first rows of a queue, waiting and leased, in order of due time. It claims
    /// nothing and changes nothing.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> outbox::Result<()> {
    /// # #[cfg(feature = "sqlite")] {
    /// use outbox::ops::PeekOptions;
    /// # let pool = outbox::sqlite::connect("sqlite::memory:").await?;
    /// # let operator = outbox::ops::Operator::sqlite(pool, outbox::TableNames::default());
    /// # operator.migrate().await?;
    ///
    /// operator.publish(outbox::Outgoing::new("orders", "{}")).await?;
    /// let rows = operator.peek("orders", &PeekOptions::default().rows(1)).await?;
    /// assert_eq!(rows[0].payload.text(), "\"{}\"");
    /// # }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When no queue can have such a name, a table is missing, or the database fails.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn peek(&self, queue: &str, options: &PeekOptions) -> Result<Vec<Peeked>> {
        check_name("queue", queue)?;
        let bytes =
            i64::from(options.bytes.map_or(i32::MAX, |it| i32::try_from(it).unwrap_or(i32::MAX)));
        let rows = i64::from(options.rows);
        let read: Result<_, StoreError> =
            on_desk!(self, desk => desk.peek(queue, rows, bytes).await);
        Ok(read?)
    }
}
