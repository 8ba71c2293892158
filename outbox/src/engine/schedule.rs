//! When one subscriber looks for rows: at the next poll, after a wake, or when a row becomes due.
//! Polls that find nothing become rarer. After a failure, or after too many claims in vain, the
//! subscriber rests.

use std::time::Duration;

use tokio::time::Instant;

use super::backoff::Backoff;
use super::signal::Signal;
use crate::store::Taken;

/// How many claims in vain may follow one another as fast as somebody wakes. Each further one rests
/// first: anybody who may connect can send wakes.
const VAIN: u32 = 20;
const REST: Duration = Duration::from_millis(10);
/// Two times that differ by less than this may be those of one row, asked for twice.
const SAME: Duration = Duration::from_millis(100);
/// What a claim reports of a row whose lease is over but which it could not take.
pub(super) const SOON: Duration = Duration::from_millis(100);
/// How many such answers may follow one another before the looks get rarer. They never get rarer
/// than [`LONG`]: such a row hides what else is to come.
pub(super) const STUCK: u32 = 5;
pub(super) const LONG: Duration = Duration::from_secs(1);

/// It looks at the next poll, after a wake, or when a row is to come; but not while it rests.
pub(super) struct Schedule {
    /// The waits for polls: longer each time one finds nothing.
    pub(super) polls: Backoff,
    /// When the next poll is, and how long it is waited for.
    pub(super) poll_at: Instant,
    pub(super) poll_wait: Duration,
    /// It rests until then: after a failure, or after too many claims in vain.
    pub(super) not_before: Instant,
    /// Claims in a row that found nothing.
    pub(super) vain: u32,
    /// The claim under way was made because a row was announced.
    woken: bool,
    /// If a wake announced it: when the next row was to come, as far as was known before.
    knew: Option<Instant>,
    /// Answers in a row that announced a row at once, which then did not come.
    stuck: u32,
    /// Looks for such a row are not rarer than the first polls, either.
    min_poll: Duration,
}

impl Schedule {
    /// A schedule that looks now.
    pub(super) fn new(now: Instant, min_poll: Duration, max_poll: Duration) -> Self {
        Self {
            polls: Backoff::of_polls(min_poll, max_poll),
            poll_at: now,
            poll_wait: Duration::ZERO,
            not_before: now,
            vain: 0,
            woken: false,
            knew: None,
            stuck: 0,
            min_poll,
        }
    }

    pub(super) fn has_rested(&self, now: Instant) -> bool {
        self.not_before <= now
    }

    pub(super) fn polls(&self, now: Instant) -> bool {
        self.poll_at <= now && self.has_rested(now)
    }

    /// True when it polls soon, and may as well do so now.
    pub(super) fn polls_soon(&self, now: Instant) -> bool {
        self.poll_at <= now + self.poll_wait / 2 && self.has_rested(now)
    }

    /// Whether it is time for a look. While there is plenty it always is, except during a rest.
    pub(super) fn wants(&self, plenty: bool, signal: &Signal, now: Instant) -> bool {
        self.has_rested(now)
            && (plenty || self.poll_at <= now || signal.at(now).is_some_and(|at| at <= now))
    }

    /// The time of the next look, if that is not now.
    pub(super) fn next(&self, plenty: bool, signal: &Signal, now: Instant) -> Option<Instant> {
        let at = signal.at(now).map_or(self.poll_at, |at| at.min(self.poll_at));
        let at = if plenty { now } else { at }.max(self.not_before);
        // What is wanted now waits for room, and the inbox tells when there is some.
        (at > now).then_some(at)
    }

    /// A claim is about to be sent.
    pub(super) fn claims(&mut self, signal: &Signal, now: Instant) {
        self.woken = signal.expects(now);
        self.knew = signal.knew();
        // Before the claim is sent, so that a wake during the claim leads to another one.
        signal.clear();
        // A claim that is taken along before its time counts as rested.
        self.not_before = self.not_before.min(now);
    }

    pub(super) fn answered(&mut self, taken: &Taken, now: Instant) {
        if taken.rows.is_empty() {
            self.vain = self.vain.saturating_add(1);
            if self.woken && !self.is_explained(taken, now) {
                // Somebody has locked what was due: another claim, which may take fewer rows than
                // it has locked, or a transaction that may be rolled back. Nobody tells when the
                // lock is gone.
                self.polls.reset();
            }
        } else {
            self.vain = 0;
            self.polls.reset();
        }
        if self.vain > VAIN {
            self.not_before = now + REST;
        }
    }

    /// Whether the wake was for a row that is still to come. A row that was known before would not
    /// have caused a wake.
    fn is_explained(&self, taken: &Taken, now: Instant) -> bool {
        let next = taken.next.and_then(|next| now.checked_add(next + SAME));
        next.is_some_and(|next| self.knew.is_none_or(|knew| next < knew))
    }

    /// There is no more for now: waits for the row that is to come next, and for a poll, which may
    /// come `soon`.
    pub(super) fn waits(
        &mut self,
        signal: &Signal,
        taken: &Taken,
        from_start: bool,
        soon: Option<Duration>,
        now: Instant,
    ) {
        if let Some(at) = self.next_row(taken, from_start).and_then(|next| now.checked_add(next)) {
            signal.due_at(at);
        }
        self.poll_wait = soon.unwrap_or_else(|| self.polls.next());
        self.poll_at = now + self.poll_wait;
    }

    /// When a row is to come. A row that is said to come at once, again and again, is locked. Rows
    /// behind it are not told of, and may be a second late.
    fn next_row(&mut self, taken: &Taken, from_start: bool) -> Option<Duration> {
        let soon = |next: Duration| !next.is_zero() && next <= SOON;
        if !taken.rows.is_empty() {
            self.stuck = 0;
        } else if from_start {
            // A claim from its place does not see such a row.
            let stuck = taken.next.is_some_and(soon);
            self.stuck = if stuck { self.stuck.saturating_add(1) } else { 0 };
        }
        let next = taken.next?;
        let longer = SOON.saturating_mul(1 << self.stuck.saturating_sub(STUCK).min(4));
        let most = self.min_poll.min(LONG);
        Some(if self.stuck > STUCK && soon(next) { next.max(longer.min(most)) } else { next })
    }
}
