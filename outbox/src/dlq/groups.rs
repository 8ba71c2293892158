//! Letters grouped by what went wrong.

use std::time::SystemTime;

use serde::Serialize;

use super::{BATCH, DeadLetters, Filter, LetterPosition, Status};
use crate::error::Result;
use crate::message::fingerprint;
use crate::ops::{json, on_desk};
use crate::redacted::debug_only;

/// Open letters, grouped by problem.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Groups {
    /// How many open letters the filter has.
    pub letters: u64,
    /// How many problems these letters have, including those that are not listed.
    pub count: u64,
    /// The problems with the most letters, the largest first.
    pub problems: Vec<Problem>,
}

/// A problem: open letters with the same fingerprint. `Debug` leaves out the text of the error.
#[derive(Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// The fingerprint of its letters.
    pub fingerprint: String,
    /// How many letters it has.
    pub letters: u64,
    /// When its first letter failed.
    #[serde(serialize_with = "json::time")]
    pub first_seen: SystemTime,
    /// When its last letter failed.
    #[serde(serialize_with = "json::time")]
    pub last_seen: SystemTime,
    /// The queue of its letters.
    pub queue: String,
    /// The kind of the error.
    pub error_kind: Option<String>,
    /// The reason of the newest letter.
    pub failure_reason: String,
    /// The id of the newest letter.
    pub newest: i64,
    /// The first 500 characters of the newest letter's error, or of its note if it has no error.
    pub sample: Option<String>,
}

debug_only!(problem: Problem => fingerprint, letters, queue, error_kind, failure_reason, newest);

/// A letter without a fingerprint, as another writer left it.
#[derive(Debug)]
pub(crate) struct Unmarked {
    pub(crate) place: LetterPosition,
    pub(crate) queue: String,
    pub(crate) error_kind: Option<String>,
    pub(crate) failure_reason: String,
    /// The error, or else the note.
    pub(crate) message: Option<String>,
}

impl Unmarked {
    fn fingerprint(&self) -> (LetterPosition, String) {
        let message = self.message.as_deref().unwrap_or_default();
        let kind = self.error_kind.as_deref();
        let fingerprint = fingerprint(&self.queue, kind, &self.failure_reason, message);
        (self.place, fingerprint.as_str().to_owned())
    }
}

impl DeadLetters {
    /// Groups the open letters of a filter by problem. Returns at most `limit` problems.
    ///
    /// First it writes the fingerprints of all open letters that have none, as another writer
    /// leaves them.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> outbox::Result<()> {
    /// # #[cfg(feature = "sqlite")] {
    /// # let pool = outbox::sqlite::connect("sqlite::memory:").await?;
    /// # let operator = outbox::ops::Operator::sqlite(pool, outbox::TableNames::default());
    /// # operator.migrate().await?;
    /// # let letters = operator.dead_letters();
    /// use outbox::dlq::Filter;
    ///
    /// let groups = letters.groups(&Filter::new(), 20).await?;
    /// println!("{} letters, {} problems", groups.letters, groups.count);
    /// # }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - When there is no dead-letter table, or a statement fails.
    /// - When a letter has no fingerprint and the database takes no writes, as on a standby.
    /// - When another transaction keeps such a letter locked.
    ///
    /// # Cancel safety
    /// A dropped call may have written some fingerprints.
    pub async fn groups(&self, filter: &Filter, limit: u32) -> Result<Groups> {
        if filter.status.is_some_and(|status| status != Status::Failed) {
            return Ok(Groups { letters: 0, count: 0, problems: Vec::new() });
        }
        self.fingerprint_all().await?;
        let filter = filter.clone().status(Status::Failed);
        let limit = i64::from(limit);
        Ok(on_desk!(self.operator, desk => desk.groups(&filter, limit).await)?)
    }

    /// Writes the missing fingerprints of open letters, a batch at a time.
    pub(crate) async fn fingerprint_all(&self) -> Result<()> {
        let (batch, mut after) = (i64::from(BATCH), None);
        loop {
            let bare = on_desk!(self.operator, desk => desk.unmarked(after, batch).await)?;
            let Some(last) = bare.last().map(|last| last.place) else { return Ok(()) };
            let marks: Vec<_> = bare.iter().map(Unmarked::fingerprint).collect();
            on_desk!(self.operator, desk => desk.fingerprint(&marks).await)?;
            // A time such as `infinity` does not arrive as it is, and may never be behind.
            if after.is_some_and(|after| after >= last) {
                return Ok(());
            }
            after = Some(last);
        }
    }
}
