//! When one subscriber looks for rows, how many it takes, and where it begins.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::info;

use super::Reader;
use super::backoff::Backoff;
use super::failures::Failures;
use super::sleep::Awake;
use super::sweep::Sweep;
use crate::error::StoreError;
use crate::store::{Claim, Expects, FEW, Position, Taken, new_token};
use crate::telemetry::TARGET;

/// So many claims in vain may follow one another as fast as somebody wakes; each further
/// one rests. Anybody who may connect can send wakes.
const VAIN: u32 = 20;
const REST: Duration = Duration::from_millis(10);
/// Two times that differ by less may be of one row, asked for twice.
const SAME: Duration = Duration::from_millis(100);
/// What a claim says of a row whose lease is over, but which it could not take.
const SOON: Duration = Duration::from_millis(100);
/// So many such answers may follow one another until the looks get more seldom, and never more
/// seldom than this: what else is to come, such a row hides.
const STUCK: u32 = 5;
const LONG: Duration = Duration::from_secs(1);
/// Who tries again after a failure takes others along that would do so within this time:
/// in an outage a hundred subscribers ask no more often than one.
const TOGETHER: Duration = Duration::from_millis(750);
/// Transactions commit in another order than their rows are due: it begins this much
/// earlier than the present.
const LATE: Duration = Duration::from_millis(500);

pub(super) struct Look {
    pub(super) reader: Arc<Reader>,
    under_way: usize,
    /// Going by the last answer.
    expects: Expects,
    /// Rows up to here were taken.
    floor: Option<Position>,
    /// After a failure, whether the next claim is one from the start. What a claim from the
    /// place took without an answer lies before it; one from the start may fail again.
    sweeps: Option<bool>,
    sweep: Sweep,
    polls: Backoff,
    poll_at: Instant,
    poll_wait: Duration,
    /// Absent if it is woken in any case.
    awake: Option<Awake>,
    failures: Failures,
    /// Claims that found nothing, one after the other.
    vain: u32,
    /// The claim under way was told of a row.
    woken: bool,
    /// If it was a wake, when the next row was to come as far as was known.
    knew: Option<Instant>,
    /// Answers, one after the other, by which a row is about to come that has not come.
    stuck: u32,
    /// After a failure, or too much in vain.
    not_before: Instant,
    pub(super) company: Company,
}

/// With whom it claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Company {
    /// In one statement with others.
    Others,
    /// Alone, to see whether it is the others because of whom theirs fails.
    Probes,
    /// Alone, until it has an answer.
    Alone,
}

impl Look {
    pub(super) fn new(reader: &Arc<Reader>, wakes_only_sleepers: bool) -> Self {
        let options = &reader.subscriber.options;
        let now = Instant::now();
        Self {
            reader: Arc::clone(reader),
            under_way: 0,
            expects: Expects::Many,
            floor: None,
            sweeps: None,
            sweep: Sweep::new(now, options.max_poll),
            polls: Backoff::of_polls(options.min_poll, options.max_poll),
            poll_at: now,
            poll_wait: Duration::ZERO,
            awake: wakes_only_sleepers.then(Awake::new),
            failures: Failures::none(),
            vain: 0,
            woken: false,
            knew: None,
            stuck: 0,
            not_before: now,
            company: Company::Others,
        }
    }

    pub(super) fn expects_plenty(&self) -> bool {
        self.expects == Expects::Plenty
    }

    fn rests(&self) -> bool {
        self.under_way == 0
    }

    /// True when it polls soon, and may as well do so now.
    pub(super) fn polls_soon(&self, now: Instant) -> bool {
        self.rests() && self.poll_at <= now + self.poll_wait / 2 && self.not_before <= now
    }

    pub(super) fn polls(&self, now: Instant) -> bool {
        self.rests() && self.poll_at <= now && self.not_before <= now
    }

    /// True when it should claim, if it has room. Of two claims the later may be answered
    /// first: one worker has its rows in their order.
    pub(super) fn wants(&self, now: Instant) -> bool {
        let two = self.expects_plenty() && self.reader.subscriber.options.max_workers > 1;
        (self.rests() || two && self.under_way < 2)
            && self.not_before <= now
            && (self.expects_plenty()
                || self.poll_at <= now
                || self.reader.signal.at(now).is_some_and(|at| at <= now))
    }

    /// When to look at it again, as far as it depends on the clock.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        if !self.rests() {
            return None;
        }
        let at = self.reader.signal.at(now).map_or(self.poll_at, |at| at.min(self.poll_at));
        let at = if self.expects_plenty() { now } else { at }.max(self.not_before);
        // What is wanted now waits for room, and the inbox tells of that.
        (at > now).then_some(at)
    }

    /// A claim, if there is room for one of its rows.
    pub(super) fn claim(&mut self, most: usize, now: Instant) -> Option<Claim> {
        if self.reader.signal.is_held() {
            return None;
        }
        let in_hand = self.reader.inbox.in_hand();
        let limit = self.reader.inbox.reserve(self.failures.leave_of(most))?;
        self.woken = self.reader.signal.expects(now);
        self.knew = self.reader.signal.knew();
        // Before the claim is sent, so that a wake during it makes for another one.
        self.reader.signal.clear();
        // Taken along before its time it has rested all the same.
        self.not_before = self.not_before.min(now);
        self.under_way += 1;
        let due = now >= self.sweep.next(self.expects_plenty());
        let sweeps = self.sweeps.unwrap_or(due);
        let after = self.floor.filter(|_| !sweeps);
        if after.is_none() {
            self.sweep.begins(now, self.floor);
        }
        let many = self.expects == Expects::Few && in_hand >= FEW;
        let subscriber = &self.reader.subscriber;
        Some(Claim {
            queues: subscriber.shared_queues(),
            limit,
            lease_ttl: subscriber.options.lease_ttl,
            token: new_token(),
            after,
            max_deliveries: subscriber.options.max_deliveries,
            expects: if many { Expects::Many } else { self.expects },
        })
    }

    pub(super) fn answered(&mut self, claim: &Claim, taken: &Taken, sent: Instant, now: Instant) {
        self.reader.teller.fetched(taken.rows.len());
        self.reader.pulse.claimed(&self.reader.subscriber, now);
        self.under_way -= 1;
        self.sweep.taken(taken.rows.len());
        if self.failures.end(taken.rows.len()) {
            info!(target: TARGET, subscriber = self.reader.subscriber.name(), "claims succeed again");
        }
        self.company = Company::Others;
        if self.sweeps == Some(claim.after.is_none()) {
            self.sweeps = None;
        }
        if claim.after.is_none() {
            let last = taken.rows.last().filter(|_| taken.rows.len() == claim.limit);
            let last = last.map(|last| Position::of(&last.row));
            self.sweep.ended(now.duration_since(sent), last);
        }
        if taken.rows.is_empty() {
            self.vain = self.vain.saturating_add(1);
            if self.woken && !self.is_explained(taken, now) {
                // Somebody has locked what was due: another claim, which may take less than it has
                // locked, or a transaction that may be rolled back. Nobody tells when it lets go.
                self.polls.reset();
            }
        } else {
            self.vain = 0;
            self.polls.reset();
        }
        if self.vain > VAIN {
            self.not_before = now + REST;
        }
        if let Some(last) = taken.rows.last() {
            let now = last.row.acquired_at.unwrap_or(last.row.next_attempt_at);
            let late = now.checked_sub(LATE).unwrap_or(now);
            let reached = Position::of(&last.row).min(Position { due: late, id: 0 });
            self.floor = self.floor.max(Some(reached));
        }
        self.expects = Expects::after(claim.limit, taken.rows.len());
        let (plenty, awake) = (self.expects_plenty(), self.awake.as_mut());
        let soon = awake.and_then(|it| it.claimed(taken.rows.len(), plenty, now));
        self.reader.sleep.set_awake(soon.is_some());
        if plenty {
            return;
        }
        if claim.after.is_some() {
            // There may be rows before the place where it began.
            self.reader.signal.look_at(self.sweep.next(false));
        }
        if let Some(at) = self.next_row(claim, taken).and_then(|next| now.checked_add(next)) {
            self.reader.signal.due_at(at);
        }
        self.poll_wait = soon.unwrap_or_else(|| self.polls.next());
        self.poll_at = now + self.poll_wait;
    }

    /// Whether the wake was for a row that is still to come. One that was known of before was not
    /// worth a wake.
    fn is_explained(&self, taken: &Taken, now: Instant) -> bool {
        let next = taken.next.and_then(|next| now.checked_add(next + SAME));
        next.is_some_and(|next| self.knew.is_none_or(|knew| next < knew))
    }

    /// When a row is to come. One that is said to come at once, again and again, is locked.
    /// What comes behind it is not told, and may be a second late.
    fn next_row(&mut self, claim: &Claim, taken: &Taken) -> Option<Duration> {
        let soon = |next: Duration| !next.is_zero() && next <= SOON;
        if !taken.rows.is_empty() {
            self.stuck = 0;
        } else if claim.after.is_none() {
            // From its place it does not see such a row.
            let stuck = taken.next.is_some_and(soon);
            self.stuck = if stuck { self.stuck.saturating_add(1) } else { 0 };
        }
        let next = taken.next?;
        let longer = SOON.saturating_mul(1 << self.stuck.saturating_sub(STUCK).min(4));
        let most = self.reader.subscriber.options.min_poll.min(LONG);
        Some(if self.stuck > STUCK && soon(next) { next.max(longer.min(most)) } else { next })
    }

    /// How long to rest after one more failure.
    pub(super) fn rest(&mut self, claim: &Claim, failed: &StoreError) -> Duration {
        self.failures.again(failed, claim.limit)
    }

    /// Its place is kept: one from the start may fail because of the dead rows that it walks
    /// over, as under a snapshot that somebody holds for hours.
    pub(super) fn failed(&mut self, claim: &Claim, failed: &StoreError, took: Duration) {
        self.reader.pulse.claim_failed(&self.reader.subscriber);
        self.under_way -= 1;
        self.expects = Expects::Many;
        // The first failure may be that of the walk over dead rows; further ones are an outage.
        if claim.after.is_none() && self.sweeps.is_none() && !failed.unsent {
            self.sweep.failed(took);
        }
        self.sweeps = Some(claim.after.is_some());
        if !failed.transient {
            self.company = Company::Alone;
        } else if self.company == Company::Probes || !self.fails_often() {
            self.company = Company::Others;
        }
        self.reader.signal.look();
    }

    pub(super) fn rests_until(&mut self, until: Instant) {
        self.not_before = until;
    }

    /// True when it is to try again soon, and may as well do so now.
    pub(super) fn tries_soon(&self, now: Instant) -> bool {
        let with_others = self.company == Company::Others;
        self.failures.pass() && self.rests() && with_others && self.not_before <= now + TOGETHER
    }

    pub(super) fn is_alone(&self) -> bool {
        self.company != Company::Others
    }

    /// Since the last answer.
    pub(super) fn failures(&self) -> u32 {
        self.failures.in_a_row()
    }

    /// Whether there was no answer again and again, though its statements were sent.
    pub(super) fn fails_often(&self) -> bool {
        self.failures.are_many()
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests;
