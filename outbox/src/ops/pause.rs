//! Pauses: for a while, nobody claims from a queue.

use std::time::SystemTime;

use serde::Serialize;

use super::{Operator, json, on_desk};
use crate::error::Result;
use crate::publish::{PublishError, check_name};

/// A queue that is paused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Pause {
    /// Its name.
    pub queue: String,
    /// Since when it is paused, by the database's clock.
    #[serde(serialize_with = "json::time")]
    pub paused_at: SystemTime,
    /// Why it is paused, if whoever paused it said so.
    pub note: Option<String>,
    /// Whether an earlier call had paused it already.
    pub was_paused: bool,
}

/// A queue that was to be resumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Resumed {
    /// Its name.
    pub queue: String,
    /// Whether it was paused until now.
    pub was_paused: bool,
}

impl Operator {
    /// Pauses queues for all processes, until [`Operator::resume`].
    ///
    /// - Claims that begin later take no rows of these queues. Rows that were claimed before are
    ///   still handled, and publishing goes on.
    /// - On PostgreSQL the call waits up to a second for claims that are under way. A claim that
    ///   takes longer, behind a lock for example, may still take rows.
    /// - A queue that is paused already keeps its time, and its note unless there is a new one.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> outbox::Result<()> {
    /// # #[cfg(feature = "sqlite")] {
    /// # let pool = outbox::sqlite::connect("sqlite::memory:").await?;
    /// # let operator = outbox::ops::Operator::sqlite(pool, outbox::TableNames::default());
    /// # operator.migrate().await?;
    /// operator.pause(&["mails"], Some("the mail server is down")).await?;
    /// assert_eq!(operator.paused().await?[0].queue, "mails");
    /// assert!(operator.resume(&["mails"]).await?[0].was_paused);
    /// # }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When no queue can have one of the names, when the note has a NUL character, when a table is
    /// missing, or when the database fails.
    ///
    /// # Cancel safety
    /// A dropped call has paused either all of the queues or none.
    pub async fn pause(&self, queues: &[&str], note: Option<&str>) -> Result<Vec<Pause>> {
        if note.is_some_and(|note| note.contains('\0')) {
            return Err(PublishError::Nul("note").into());
        }
        let queues = names(queues)?;
        Ok(on_desk!(self, desk => desk.pause(&queues, note).await)?)
    }

    /// Ends the pauses of queues, and wakes the processes that read them. On PostgreSQL, with names
    /// that [never notify](crate::TableNames::never_notify), they find out at their next poll.
    ///
    /// # Errors
    /// When no queue can have one of the names, a table is missing, or the database fails.
    ///
    /// # Cancel safety
    /// A dropped call has resumed either all of the queues or none.
    pub async fn resume(&self, queues: &[&str]) -> Result<Vec<Resumed>> {
        let queues = names(queues)?;
        let resumed = on_desk!(self, desk => desk.resume(&queues).await)?;
        let was_paused = |queue: &String| resumed.contains(queue);
        let all = queues.into_iter();
        Ok(all.map(|queue| Resumed { was_paused: was_paused(&queue), queue }).collect())
    }

    /// The queues that are paused, by name.
    ///
    /// # Errors
    /// When a table is missing or the database fails.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn paused(&self) -> Result<Vec<Pause>> {
        Ok(on_desk!(self, desk => desk.paused().await)?)
    }
}

/// The names, each once and in order, so that two calls lock them in the same order.
fn names(queues: &[&str]) -> Result<Vec<String>> {
    let mut names: Vec<String> = queues.iter().map(|&queue| queue.to_owned()).collect();
    names.sort_unstable();
    names.dedup();
    for name in &names {
        check_name("queue", name)?;
    }
    Ok(names)
}
