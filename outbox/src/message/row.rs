//! One row of the outbox table, and one of the dead-letter table.

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use uuid::Uuid;

use super::headers::EXPIRES_IN;
use super::headers::{Headers, MalformedHeaders};
use super::stored::Stored;
use crate::redacted::debug_only;
use crate::subscriber::LONGEST;

/// A message as it lies in the outbox table.
///
/// Times are by the database's clock. `Debug` prints sizes, never the payload or
/// a header value.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Row {
    /// Identity in the outbox table. Ids grow, with gaps.
    pub id: i64,
    /// The queue it was published to.
    pub queue: String,
    /// The bytes as published, never re-encoded.
    pub payload: Bytes,
    /// Failed runs of the handler so far.
    pub attempts_count: u64,
    /// Claims so far, without claims that were given back unstarted, snoozed or put off.
    pub deliveries_count: u64,
    /// When it was published, or last moved as a timer.
    pub created_at: SystemTime,
    /// When it is, or was, due.
    pub next_attempt_at: SystemTime,
    /// When a handler first failed on it.
    pub first_attempt_at: Option<SystemTime>,
    /// When a handler last failed on it.
    pub last_attempt_at: Option<SystemTime>,
    /// When the current lease was taken or last extended.
    pub acquired_at: Option<SystemTime>,
    /// The lease token. `None` when nobody holds the row.
    pub acquired_token: Option<Uuid>,
    /// The timer name, which one live row of the queue has at most.
    pub timer_id: Option<String>,
    pub(crate) headers: Option<Stored>,
}

impl Row {
    /// A row that was published at this time, is due at once, and was never claimed.
    pub(crate) fn fresh(id: i64, queue: String, payload: Bytes, at: SystemTime) -> Self {
        Self {
            id,
            queue,
            payload,
            attempts_count: 0,
            deliveries_count: 0,
            created_at: at,
            next_attempt_at: at,
            first_attempt_at: None,
            last_attempt_at: None,
            acquired_at: None,
            acquired_token: None,
            timer_id: None,
            headers: None,
        }
    }

    /// The headers.
    ///
    /// # Errors
    /// When the column holds something other than a JSON object, which this
    /// crate never writes.
    pub fn headers(&self) -> Result<Headers, MalformedHeaders> {
        Headers::from_json(self.headers.as_ref().map(Stored::as_bytes))
    }

    /// A copy without the payload and the headers.
    pub(crate) fn without_content(&self) -> Self {
        Self { payload: Bytes::new(), headers: None, ..self.clone() }
    }

    fn header_bytes(&self) -> usize {
        self.headers.as_ref().map_or(0, |stored| stored.as_bytes().len())
    }

    /// Nearly what it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.payload.len() + self.header_bytes()
    }

    /// For how long it has been due, `since_claim` after its claim. A row that has been due since
    /// 1970 or before, which may stand for "always", has not waited.
    pub(crate) fn waited(&self, since_claim: Duration) -> Duration {
        if self.next_attempt_at <= SystemTime::UNIX_EPOCH {
            return Duration::ZERO;
        }
        let claimed = self.acquired_at.and_then(|at| at.duration_since(self.next_attempt_at).ok());
        claimed.unwrap_or_default() + since_claim
    }

    /// True when it had to be started before now, which is `since_claim` after its
    /// claim. An age equal to the limit is too late: the clock may stand still.
    pub(crate) fn has_expired(&self, since_claim: Duration) -> bool {
        self.start_within().is_some_and(|left| since_claim >= left)
    }

    /// For how long after its claim it may be started. `None` if it does not expire.
    pub(crate) fn start_within(&self) -> Option<Duration> {
        // Most rows have no such header, and their headers are not parsed.
        self.headers.as_ref().filter(|headers| headers.may_expire())?;
        let headers = self.headers().unwrap_or_default();
        let limit = headers.get(EXPIRES_IN)?.parse().ok().map(Duration::from_millis)?;
        let age = self.acquired_at.and_then(|at| at.duration_since(self.created_at).ok());
        Some(limit.saturating_sub(age.unwrap_or_default()))
    }
}

debug_only!(row: Row =>
    id, queue, payload_bytes = row.payload.len(), header_bytes = row.header_bytes(),
    attempts_count, deliveries_count, leased = row.acquired_token.is_some(), timer_id);

/// Why a row was dead-lettered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureReason {
    /// The row was claimed more often than `max_deliveries` allows. The handler did not run.
    MaxDeliveries,
    /// The handler failed, and the retry strategy gave no further delay.
    RetryTerminal,
    /// The message was not started within the time that its publisher gave it.
    Expired,
    /// The handler rejected the message, or failed under `RejectOnError`.
    Rejected,
}

impl FailureReason {
    /// The text in the column `failure_reason`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MaxDeliveries => "max_deliveries",
            Self::RetryTerminal => "retry_terminal",
            Self::Expired => "expired",
            Self::Rejected => "rejected",
        }
    }
}

impl fmt::Display for FailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A row of the dead-letter table. `Debug` prints sizes, never the payload, a
/// header value or the text of the error.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Identity in the dead-letter table.
    pub id: i64,
    /// The id the row had in the outbox table.
    pub original_id: i64,
    /// The queue it was published to.
    pub queue: String,
    /// The bytes as published.
    pub payload: Bytes,
    /// Claims until the failure, without claims that were given back unstarted, snoozed or
    /// put off.
    pub deliveries_count: u64,
    /// When it was published.
    pub created_at: SystemTime,
    /// When it was dead-lettered.
    pub failed_at: SystemTime,
    /// Why it was dead-lettered.
    pub failure_reason: FailureReason,
    /// The rendered error, at most 8 KiB.
    pub last_exception: Option<String>,
    /// The timer name it had.
    pub timer_id: Option<String>,
    /// The kind of the error: see [`HandlerError::kind`](crate::HandlerError::kind).
    pub error_kind: Option<String>,
    /// What the handler said when it rejected, or what an operator wrote later.
    pub note: Option<String>,
    /// The same text for all letters of one problem. It is made of the queue, the kind of
    /// the error, and the error's message without numbers and ids.
    pub fingerprint: Option<String>,
    pub(crate) headers: Option<Stored>,
}

impl DeadLetter {
    /// The headers, as [`Row::headers`] gives them.
    ///
    /// # Errors
    /// When the column holds something other than a JSON object.
    pub fn headers(&self) -> Result<Headers, MalformedHeaders> {
        Headers::from_json(self.headers.as_ref().map(Stored::as_bytes))
    }
}

debug_only!(letter: DeadLetter =>
    id, original_id, queue, payload_bytes = letter.payload.len(), deliveries_count,
    failure_reason, error_kind);

/// A time from the tables: microseconds since 1970. Values that `SystemTime` cannot hold
/// (PostgreSQL's `infinity`) become three centuries after 1970, or one century before it.
pub(crate) fn from_micros(micros: i64) -> SystemTime {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    let distance = Duration::from_micros(micros.unsigned_abs());
    let time = if micros >= 0 {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    };
    time.unwrap_or(if micros >= 0 {
        SystemTime::UNIX_EPOCH + 3 * CENTURY
    } else {
        SystemTime::UNIX_EPOCH - CENTURY
    })
}

/// The inverse of [`from_micros`], saturating.
pub(crate) fn to_micros(time: SystemTime) -> i64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_micros()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_micros()).map_or(i64::MIN, |us| -us),
    }
}

/// A delay in microseconds, cut at ten years: the databases fail on more.
pub(crate) fn delay_micros(delay: Duration) -> i64 {
    i64::try_from(delay.min(LONGEST).as_micros()).unwrap_or(i64::MAX)
}
