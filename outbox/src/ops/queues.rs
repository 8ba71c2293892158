//! The list of queues.

use std::time::SystemTime;

use serde::Serialize;

use super::{Operator, json, on_desk};
use crate::error::Result;

/// A queue that has rows or open dead letters, or is paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueueInfo {
    /// Its name.
    pub queue: String,
    /// Whether it has rows, waiting or leased.
    pub has_rows: bool,
    /// Whether it has open dead letters, which are neither resolved nor ignored.
    pub has_dead_letters: bool,
    /// Since when it is paused, by the database's clock; `None` if it is not.
    #[serde(serialize_with = "json::maybe_time")]
    pub paused_at: Option<SystemTime>,
    /// Why it is paused, if whoever paused it said so.
    pub note: Option<String>,
}

impl Operator {
    /// Lists the queues that have rows or open dead letters or are paused, by name; at most
    /// `limit` of them. It costs a step in an index for each queue, however many rows the queue
    /// has.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> outbox::Result<()> {
    /// # #[cfg(feature = "sqlite")] {
    /// # let pool = outbox::sqlite::connect("sqlite::memory:").await?;
    /// # let operator = outbox::ops::Operator::sqlite(pool, outbox::TableNames::default());
    /// # operator.migrate().await?;
    /// operator.publish(outbox::Outgoing::new("orders", &7)).await?;
    /// assert_eq!(operator.queues(100).await?[0].queue, "orders");
    /// # }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When a table is missing or the database fails.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn queues(&self, limit: u32) -> Result<Vec<QueueInfo>> {
        Ok(on_desk!(self, desk => desk.queues(i64::from(limit)).await)?)
    }
}
