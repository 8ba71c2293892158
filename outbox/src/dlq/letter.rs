//! A dead letter as operators see it.

use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use bytes::Bytes;
use serde::Serialize;

use crate::message::{Headers, MalformedHeaders};
use crate::ops::json;
use crate::redacted::debug_only;

/// Where a letter is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// Nobody has dealt with it.
    Failed,
    /// It was replayed, or dealt with in another way.
    Resolved,
    /// It is not worth dealing with.
    Ignored,
}

impl Status {
    /// Every status, in the order of a life.
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

/// A text that is no [`Status`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no status of a dead letter; there are `failed`, `resolved` and `ignored`")]
pub struct StatusError(String);

impl FromStr for Status {
    type Err = StatusError;

    fn from_str(text: &str) -> Result<Self, StatusError> {
        let named = Self::ALL.into_iter().find(|status| status.as_str() == text);
        named.ok_or_else(|| StatusError(text.into()))
    }
}

/// A dead letter without its payload and headers. Times are the database's.
///
/// `Debug` prints no text of the error.
#[derive(Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Letter {
    /// Identity in the dead-letter table.
    pub id: i64,
    /// The id the row had in the outbox table when it failed.
    pub original_id: i64,
    /// The queue it was published to.
    pub queue: String,
    /// Size of the payload.
    pub payload_bytes: u64,
    /// Claims until the failure, without those given back unstarted, snoozed or put off.
    pub deliveries_count: u64,
    /// When the row was published.
    #[serde(serialize_with = "json::time")]
    pub created_at: SystemTime,
    /// When it was dead-lettered.
    #[serde(serialize_with = "json::time")]
    pub failed_at: SystemTime,
    /// Why, as in the column: another writer may have reasons of its own.
    pub failure_reason: String,
    /// The rendered error; in pages its first 1,000 characters.
    pub last_exception: Option<String>,
    /// The timer name it had.
    pub timer_id: Option<String>,
    /// Where it is in its life.
    pub status: Status,
    /// When it was resolved or ignored.
    #[serde(serialize_with = "json::maybe_time")]
    pub resolved_at: Option<SystemTime>,
    /// What the handler said when it rejected, or an operator wrote later.
    pub note: Option<String>,
    /// The kind of the error.
    pub error_kind: Option<String>,
    /// The same for all letters of one problem. Letters of other writers get theirs
    /// when they are grouped.
    pub fingerprint: Option<String>,
    /// The row of the outbox that its replay made.
    pub replayed_id: Option<i64>,
    /// How often its message had been replayed before it failed.
    pub replays: u64,
}

debug_only!(letter: Letter =>
    id, original_id, queue, payload_bytes, failure_reason, error_kind, status, replayed_id);

/// A dead letter with all that is in it. `Debug` prints sizes.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Opened {
    /// What a page has of it.
    pub letter: Letter,
    /// The bytes as published.
    pub payload: Bytes,
    /// The stored text, which may be broken.
    pub(crate) headers: Option<Box<str>>,
}

impl Opened {
    /// The headers.
    ///
    /// # Errors
    /// When the column holds something other than a JSON object.
    pub fn headers(&self) -> Result<Headers, MalformedHeaders> {
        Headers::from_json(self.headers.as_deref().map(str::as_bytes))
    }

    /// The stored text of the headers.
    #[must_use]
    pub fn raw_headers(&self) -> Option<&str> {
        self.headers.as_deref()
    }
}

debug_only!(opened: Opened => letter);
