//! The answers of `why`.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use uuid::Uuid;

use crate::ops::json;
use crate::redacted::debug_only;

/// One reason why a row is where it is. [`Answer::told`] puts it into words.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// A claim holds the row, and its lease has not run out.
    Leased {
        /// The claim's token.
        token: Uuid,
        /// When the lease was taken or last extended.
        #[serde(serialize_with = "json::time")]
        acquired_at: SystemTime,
        /// When the lease ends unless it is extended.
        #[serde(serialize_with = "json::time")]
        until: SystemTime,
        /// How long a lease lasts.
        #[serde(serialize_with = "json::seconds", rename = "lease_ttl_seconds")]
        lease_ttl: Duration,
        /// The subscriber of this program that has leases of this time; `None`: the default was
        /// assumed.
        subscriber: Option<String>,
        /// Whether the claim's process still extends it.
        extension: Extension,
        /// Whether the row runs alone, because it may have brought down a process.
        alone: bool,
    },
    /// A claim holds the row, and its lease has run out: the next claim takes the row.
    LeaseRanOut {
        /// The claim's token.
        token: Uuid,
        /// When the lease was taken or last extended.
        #[serde(serialize_with = "json::time")]
        acquired_at: SystemTime,
        /// How long ago the lease ran out.
        #[serde(serialize_with = "json::seconds", rename = "over_for_seconds")]
        over_for: Duration,
        /// The subscriber of this program that has leases of this time; `None`: the default was
        /// assumed.
        subscriber: Option<String>,
    },
    /// The row has a lease token and no time of a lease: no claim takes it, and none will. No claim
    /// writes such a row, and the `CHECK` of the table, if it has one, refuses it.
    HalfLeased {
        /// The token.
        token: Uuid,
    },
    /// Its queue is paused.
    Paused {
        /// Since when.
        #[serde(serialize_with = "json::time")]
        since: SystemTime,
        /// Why, if whoever paused it said so.
        note: Option<String>,
    },
    /// The row is due later.
    Scheduled {
        /// When it is due.
        #[serde(serialize_with = "json::time")]
        due_at: SystemTime,
        /// How far off that is.
        #[serde(serialize_with = "json::seconds", rename = "due_in_seconds")]
        due_in: Duration,
        /// How often its handler failed.
        attempts: u64,
        /// When its handler last failed; `None`: its publish or a snooze set the time.
        #[serde(serialize_with = "json::maybe_time")]
        last_attempt_at: Option<SystemTime>,
    },
    /// A transaction that is not over has locked or deleted the row.
    Locked {
        /// The sessions. Empty if they cannot be seen.
        by: Vec<Session>,
        /// Whether these sessions hold the row, as far as can be seen. If `false`, they are those
        /// that may hold it.
        certain: bool,
    },
    /// The whole table or file is locked.
    TableLocked {
        /// The sessions that lock it. Empty if they cannot be seen.
        by: Vec<Session>,
    },
    /// Nobody seems to read its queue.
    NobodyReads {
        /// How sure that is.
        sure: Sureness,
        /// Whether this program has a handler that would read it; `None` if it has no handlers.
        program_would: Option<bool>,
    },
    /// The row was not started in the time that its publisher gave it: the next claim ends it.
    Expired {
        /// When that time was over.
        #[serde(serialize_with = "json::time")]
        at: SystemTime,
    },
    /// The row is due and free, and nothing is in its way.
    Ready {
        /// For how long it has been due.
        #[serde(serialize_with = "json::seconds", rename = "due_for_seconds")]
        due_for: Duration,
        /// Rows of its queue that are claimed before it.
        before: u64,
        /// Whether there are more of them.
        before_bounded: bool,
    },
    /// The row is not in the table: it became this dead letter.
    DeadLetter(Letter),
    /// A replay of this dead letter made the row.
    ReplayOf(Letter),
    /// The row is not there, and a transaction that may have written it is not over.
    Uncommitted {
        /// The sessions that have written to the table, the oldest first. Empty if they cannot be
        /// seen.
        writers: Vec<Session>,
    },
    /// The row is in neither table. Its id was given out, as far as can be known.
    Gone {
        /// The last id that was given out; `None` if that cannot be known.
        last_id: Option<i64>,
        /// How many dead letters were looked at, the newest first; `None`: all.
        letters_read: Option<u64>,
    },
    /// No message has had this id.
    NeverGivenOut {
        /// The last id that was given out.
        last_id: i64,
    },
}

/// Whether a lease is still being extended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Extension {
    /// The lease was extended while it was watched, or the row was settled.
    Alive,
    /// The lease is fresh: no extension is to be expected yet.
    NotYetDue {
        /// A process that lives will have extended it by then.
        #[serde(serialize_with = "json::time")]
        by: SystemTime,
    },
    /// A process that lives would have extended it by now, if it runs the handler.
    Overdue {
        /// For how long the extension has been overdue.
        #[serde(serialize_with = "json::seconds", rename = "since_seconds")]
        since: Duration,
    },
}

/// How sure an answer is, if it cannot be certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Sureness {
    /// There is no trace of a reader, and a reader nearly always leaves one.
    Likely,
    /// There is no trace of a reader, but only a reader with much to do leaves one.
    Guess,
}

/// A connection with an open transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Session {
    /// The server's process; `None`: a prepared transaction, which has none.
    pub pid: Option<i32>,
    /// What the program calls itself.
    pub application_name: Option<String>,
    /// Its role.
    pub user: Option<String>,
    /// `active`, `idle in transaction`, ..
    pub state: Option<String>,
    /// How long its transaction has been open.
    #[serde(serialize_with = "json::maybe_seconds", rename = "open_for_seconds")]
    pub open_for: Option<Duration>,
}

/// A dead letter, in short. `Debug` leaves out the text of its error.
#[derive(Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Letter {
    /// Its id in the dead-letter table.
    pub letter_id: i64,
    /// The id that its row had.
    pub original_id: i64,
    /// Its queue.
    pub queue: String,
    /// When it failed for good.
    #[serde(serialize_with = "json::time")]
    pub failed_at: SystemTime,
    /// Why it failed for good.
    pub failure_reason: String,
    /// The kind of its error.
    pub error_kind: Option<String>,
    /// The beginning of its error.
    pub last_exception: Option<String>,
    /// `failed`, `resolved` or `ignored`.
    pub status: String,
    /// When it was resolved or ignored.
    #[serde(serialize_with = "json::maybe_time")]
    pub resolved_at: Option<SystemTime>,
    /// The row that a replay made of it.
    pub replayed_id: Option<i64>,
}

debug_only!(letter: Letter =>
    letter_id, original_id, queue, failure_reason, error_kind, status, replayed_id);
