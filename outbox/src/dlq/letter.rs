//! A dead letter as operators see it.

use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use bytes::Bytes;
use serde::Serialize;

use crate::message::{Headers, MalformedHeaders};
use crate::ops::json;
use crate::redacted::debug_only;

/// The status of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// The letter is open: nobody has dealt with it.
    Failed,
    /// The letter was replayed, or dealt with in another way.
    Resolved,
    /// Somebody judged the letter not worth dealing with.
    Ignored,
}

impl Status {
    /// Every status; the open one first.
    pub const ALL: [Self; 3] = [Self::Failed, Self::Resolved, Self::Ignored];

    /// The text in the column `status`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Resolved => "resolved",
            Self::Ignored => "ignored",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text that names no [`Status`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a status of a dead letter; there are `failed`, `resolved` and `ignored`")]
pub struct StatusError(String);

impl FromStr for Status {
    type Err = StatusError;

    fn from_str(text: &str) -> Result<Self, StatusError> {
        let named = Self::ALL.into_iter().find(|status| status.as_str() == text);
        named.ok_or_else(|| StatusError(text.into()))
    }
}

/// A dead letter without its payload and headers. Its times are by the database's clock.
///
/// `Debug` leaves out the text of the error and the note.
#[derive(Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Letter {
    /// Identity in the dead-letter table.
    pub id: i64,
    /// The id that the row had in the outbox table when it failed.
    pub original_id: i64,
    /// The queue that the message was published to.
    pub queue: String,
    /// Size of the payload.
    pub payload_bytes: u64,
    /// Claims up to the failure. A claim that was given back unstarted, snoozed or put off does
    /// not count.
    pub deliveries_count: u64,
    /// When the row was published.
    #[serde(serialize_with = "json::time")]
    pub created_at: SystemTime,
    /// When it became a dead letter.
    #[serde(serialize_with = "json::time")]
    pub failed_at: SystemTime,
    /// Why it failed, as stored in the column. Other writers may have reasons of their own.
    pub failure_reason: String,
    /// The rendered error. In a page it is cut to its first 1,000 characters.
    pub last_exception: Option<String>,
    /// The timer name that the row had.
    pub timer_id: Option<String>,
    /// Its status.
    pub status: Status,
    /// When it was resolved or ignored.
    #[serde(serialize_with = "json::maybe_time")]
    pub resolved_at: Option<SystemTime>,
    /// What the handler said when it rejected the message, or what an operator wrote later. In
    /// a page it is cut to its first 1,000 characters.
    pub note: Option<String>,
    /// The kind of the error.
    pub error_kind: Option<String>,
    /// The same for all letters of one problem. A letter of another writer gets its
    /// fingerprint when letters are grouped.
    pub fingerprint: Option<String>,
    /// The id of the outbox row that its replay made.
    pub replayed_id: Option<i64>,
    /// How often its message had been replayed before it failed.
    pub replays: u64,
}

debug_only!(letter: Letter =>
    id, original_id, queue, payload_bytes, failure_reason, error_kind, status, replayed_id);

/// A dead letter with its payload and headers. `Debug` prints only the `letter`.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Opened {
    /// Everything but the payload and headers. Texts are whole here, not cut as in a page.
    pub letter: Letter,
    /// The payload as it was published.
    pub payload: Bytes,
    /// The stored text, which may be broken.
    pub(crate) headers: Option<Box<str>>,
}

impl Opened {
    /// The headers, parsed.
    ///
    /// # Errors
    /// When the column holds something other than a JSON object.
    pub fn headers(&self) -> Result<Headers, MalformedHeaders> {
        Headers::from_json(self.headers.as_deref().map(str::as_bytes))
    }

    /// The headers as the text that is stored.
    #[must_use]
    pub fn raw_headers(&self) -> Option<&str> {
        self.headers.as_deref()
    }
}

debug_only!(opened: Opened => letter);
