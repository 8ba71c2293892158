//! What `why` answers.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use uuid::Uuid;

use crate::ops::json;
use crate::redacted::debug_only;

/// One reason why a row is where it is. [`Answer::told`] says it in words.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// A claim holds it, and its time is not over.
    Leased {
        /// The claim's token.
        #[serde(serialize_with = "json::uuid")]
        token: Uuid,
        /// When the lease was taken or last extended.
        #[serde(serialize_with = "json::time")]
        acquired_at: SystemTime,
        /// When it ends unless it is extended.
        #[serde(serialize_with = "json::time")]
        until: SystemTime,
        /// How long a lease lasts.
        #[serde(serialize_with = "json::seconds", rename = "lease_ttl_seconds")]
        lease_ttl: Duration,
        /// The subscriber of this program whose lease that is; `None`: the default was
        /// assumed.
        subscriber: Option<String>,
        /// Whether the claim's process still extends it.
        extension: Extension,
        /// The row runs alone, because it may have brought down a process.
        alone: bool,
    },
    /// A claim holds it whose time is over: the next claim takes it.
    LeaseRanOut {
        /// The claim's token.
        #[serde(serialize_with = "json::uuid")]
        token: Uuid,
        /// When the lease was taken or last extended.
        #[serde(serialize_with = "json::time")]
        acquired_at: SystemTime,
        /// For how long it is over.
        #[serde(serialize_with = "json::seconds", rename = "over_for_seconds")]
        over_for: Duration,
        /// The subscriber of this program whose lease that is; `None`: the default was
        /// assumed.
        subscriber: Option<String>,
    },
    /// It has a token and no time of a lease: no claim takes it, and none will. No claim writes
    /// that, and the `CHECK` of the table refuses it, where it has one.
    HalfLeased {
        /// The token.
        #[serde(serialize_with = "json::uuid")]
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
    /// It is due later.
    Scheduled {
        /// When.
        #[serde(serialize_with = "json::time")]
        due_at: SystemTime,
        /// How far off that is.
        #[serde(serialize_with = "json::seconds", rename = "due_in_seconds")]
        due_in: Duration,
        /// How often its handler failed.
        attempts: u64,
        /// When its handler last failed; `None`: it was published, or snoozed, for then.
        #[serde(serialize_with = "json::maybe_time")]
        last_attempt_at: Option<SystemTime>,
    },
    /// A transaction has locked it, or deleted it, and is not over.
    Locked {
        /// Whose. Empty if that cannot be seen.
        by: Vec<Session>,
        /// It is the row that they hold, as far as can be seen; otherwise they are those
        /// that may.
        certain: bool,
    },
    /// The whole table or file is locked.
    TableLocked {
        /// By whom. Empty if that cannot be seen.
        by: Vec<Session>,
    },
    /// Nobody seems to read its queue.
    NobodyReads {
        /// How sure that is.
        sure: Sureness,
        /// Whether this program has a handler that would; `None` if it has no handlers.
        program_would: Option<bool>,
    },
    /// It was not started in the time that its publisher gave it: the next claim ends it.
    Expired {
        /// When that time was over.
        #[serde(serialize_with = "json::time")]
        at: SystemTime,
    },
    /// It is due and free, and nothing is in its way.
    Ready {
        /// Since when it is due.
        #[serde(serialize_with = "json::seconds", rename = "due_for_seconds")]
        due_for: Duration,
        /// Rows of its queue that are claimed before it.
        before: u64,
        /// There are more of them.
        before_bounded: bool,
    },
    /// It is not in the table, and became a dead letter.
    DeadLetter(Letter),
    /// A replay of a dead letter made it.
    ReplayOf(Letter),
    /// It is not there, and a transaction that may have written it is not over.
    Uncommitted {
        /// Those that have written to the table, the oldest first. Empty if they cannot
        /// be seen.
        writers: Vec<Session>,
    },
    /// It was given out, and is not there any more.
    Gone {
        /// The last id that was given out; `None` if that cannot be known.
        last_id: Option<i64>,
        /// Dead letters that were looked at, the newest first; `None`: all.
        letters_read: Option<u64>,
    },
    /// No message has had this id.
    NeverGivenOut {
        /// The last one that was given out.
        last_id: i64,
    },
}

/// Whether a lease is still being extended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Extension {
    /// It was, while it was watched, or the row was settled.
    Alive,
    /// It is fresh: an extension was not to be expected yet.
    NotYetDue {
        /// A process that lives will have extended it by then.
        #[serde(serialize_with = "json::time")]
        by: SystemTime,
    },
    /// A process that lives would have extended it by now, if it runs the handler.
    Overdue {
        /// For so long.
        #[serde(serialize_with = "json::seconds", rename = "since_seconds")]
        since: Duration,
    },
}

/// How sure an answer is that cannot be certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Sureness {
    /// No trace of a reader where there would be one nearly always.
    Likely,
    /// No trace of a reader where there would be one if it had much to do.
    Guess,
}

/// A connection with an open transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Session {
    /// The server's process; `None`: a prepared transaction, which has none.
    pub pid: Option<i32>,
    /// What it calls itself.
    pub application_name: Option<String>,
    /// Its role.
    pub user: Option<String>,
    /// `active`, `idle in transaction`, ..
    pub state: Option<String>,
    /// How long its transaction has been open.
    #[serde(serialize_with = "json::maybe_seconds", rename = "open_for_seconds")]
    pub open_for: Option<Duration>,
}

/// A dead letter, in short. `Debug` prints no text of its error.
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
    /// Why.
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
