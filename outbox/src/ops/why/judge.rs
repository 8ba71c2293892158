//! Makes answers of what was found.

use std::time::{Duration, SystemTime};

use super::Handler;
use super::answer::{Answer, Extension, Session, Sureness};
use crate::message::Row;
use crate::message::headers::EXPIRES_IN;
use crate::store::is_alone;

/// The lease time of a subscriber that does not set one.
const LEASE_TTL: Duration = Duration::from_secs(60);
/// Leases are extended when a third of their time is over, by a task that looks six times in a
/// lease, so by half of it at the latest. This is the time that the statement may take.
const SLACK: Duration = Duration::from_secs(1);
/// How many rows before a row are counted at most.
pub(crate) const BEFORE: i64 = 10_000;

/// A row that is in the table, without its payload.
#[derive(Debug, Clone)]
pub(crate) struct FoundRow {
    pub(crate) row: Row,
    /// The time by the database's clock.
    pub(crate) now: SystemTime,
    /// The number of the transaction that last locked or deleted it, where that is
    /// known; `0` if none.
    #[cfg_attr(not(feature = "postgres"), allow(dead_code))]
    pub(crate) locker: String,
    /// The pause of its queue, and its note.
    pub(crate) paused: Option<(SystemTime, Option<String>)>,
}

/// The sessions that are in the way of claims for longer than a statement takes.
#[derive(Debug, Clone, Default)]
pub(crate) struct LockedBy {
    /// Those that lock the table or the file.
    pub(crate) table: Option<Vec<Session>>,
    /// Those that lock the row, and whether it is certain that they do.
    pub(crate) row: Option<(Vec<Session>, bool)>,
}

/// Traces of subscribers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Readers {
    /// Connections that sleep on the queue, or on another queue that shares its lock; `None` where
    /// they leave no trace.
    pub(crate) sleepers: Option<u64>,
    /// Fresh leases of other rows of the queue.
    pub(crate) leases: u64,
}

/// All that is known of a row that is in the table.
pub(super) struct Judged<'a> {
    found: &'a FoundRow,
    handler: Option<&'a Handler>,
    /// Its lease was extended while it was watched.
    alive: bool,
    pub(super) locks: LockedBy,
    pub(super) readers: Option<Readers>,
    /// Free rows before it, and whether there are more.
    pub(super) before: Option<(u64, bool)>,
}

impl<'a> Judged<'a> {
    pub(super) fn new(found: &'a FoundRow, handler: Option<&'a Handler>, alive: bool) -> Self {
        Self { found, handler, alive, locks: LockedBy::default(), readers: None, before: None }
    }

    pub(super) fn lease_ttl(&self) -> Duration {
        self.handler.map_or(LEASE_TTL, |one| one.lease_ttl)
    }

    /// Whether a claim holds it and its lease has not run out. Without a token nobody holds it,
    /// whatever its time.
    pub(super) fn is_leased(&self) -> bool {
        let row = &self.found.row;
        let at = row.acquired_at.filter(|_| row.acquired_token.is_some());
        self.alive || at.is_some_and(|at| at + self.lease_ttl() > self.found.now)
    }

    /// A token that somebody wrote without a time: such a lease never runs out.
    fn half_lease(&self) -> Option<Answer> {
        let row = &self.found.row;
        let token = row.acquired_token.filter(|_| row.acquired_at.is_none())?;
        Some(Answer::HalfLeased { token })
    }

    /// What decides comes first. `program_would`: whether this program reads the queue.
    pub(super) fn answers(self, program_would: Option<bool>) -> Vec<Answer> {
        let FoundRow { row, now, paused, .. } = self.found;
        let mut answers = Vec::new();
        answers.extend(self.lease().filter(|_| self.is_leased()));
        answers.extend(self.half_lease());
        let locked = self.locks.table.clone().map(|by| Answer::TableLocked { by });
        answers.extend(locked);
        if let Some((since, note)) = paused {
            answers.push(Answer::Paused { since: *since, note: note.clone() });
        }
        let due_in = row.next_attempt_at.duration_since(*now).ok().filter(|wait| !wait.is_zero());
        answers.extend(due_in.map(|due_in| Answer::Scheduled {
            due_at: row.next_attempt_at,
            due_in,
            attempts: row.attempts_count,
            last_attempt_at: row.last_attempt_at,
        }));
        let by = self.locks.row.clone();
        answers.extend(by.map(|(by, certain)| Answer::Locked { by, certain }));
        let stopped = !answers.is_empty();
        let sure = self.nobody_reads(program_would, stopped);
        let unread = |sure| Answer::NobodyReads { sure, program_would };
        answers.extend(sure.filter(|sure| *sure == Sureness::Likely).map(unread));
        let unheard = !answers.is_empty();
        answers.extend(self.lease().filter(|_| !self.is_leased()));
        answers.extend(self.expired().filter(|_| !self.is_leased()));
        if !unheard && let Some((before, before_bounded)) = self.before {
            let due_for = now.duration_since(row.next_attempt_at).unwrap_or_default();
            answers.push(Answer::Ready { due_for, before, before_bounded });
        }
        // If something stops it anyway, a guess is of no use.
        let guess = sure.filter(|sure| *sure == Sureness::Guess && !stopped);
        answers.extend(guess.map(unread));
        answers
    }

    fn lease(&self) -> Option<Answer> {
        let FoundRow { row, now, .. } = self.found;
        let (token, acquired_at) = row.acquired_token.zip(row.acquired_at)?;
        let lease_ttl = self.lease_ttl();
        let subscriber = self.handler.map(|one| one.name.to_owned());
        let until = acquired_at + lease_ttl;
        if !self.is_leased() {
            let over_for = now.duration_since(until).unwrap_or_default();
            return Some(Answer::LeaseRanOut { token, acquired_at, over_for, subscriber });
        }
        let by = acquired_at + lease_ttl / 2 + SLACK;
        let extension = match now.duration_since(by) {
            _ if self.alive => Extension::Alive,
            Ok(since) => Extension::Overdue { since },
            Err(_) => Extension::NotYetDue { by },
        };
        let alone = is_alone(token);
        Some(Answer::Leased { token, acquired_at, until, lease_ttl, subscriber, extension, alone })
    }

    fn expired(&self) -> Option<Answer> {
        let row = &self.found.row;
        let headers = row.headers().ok()?;
        let limit = headers.get(EXPIRES_IN)?.parse().ok().map(Duration::from_millis)?;
        let at = row.created_at.checked_add(limit)?;
        (at < self.found.now).then_some(Answer::Expired { at })
    }

    /// A file has no trace of a reader that has nothing to do. There only a row that nothing else stops
    /// tells that nobody reads: it would have been claimed.
    fn nobody_reads(&self, program_would: Option<bool>, stopped: bool) -> Option<Sureness> {
        let Readers { sleepers, leases } = self.readers?;
        if leases > 0 || sleepers.is_some_and(|count| count > 0) {
            return None;
        }
        let shows = sleepers.is_some() || program_would == Some(false) && !stopped;
        Some(if shows { Sureness::Likely } else { Sureness::Guess })
    }
}
