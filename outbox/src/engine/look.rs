//! Where one subscriber looks for rows, how many it asks for, and with whom. Its `schedule` says
//! when, its `sweep` whether to begin at the start or where the last claim ended, and its
//! `failures` how much less to ask for.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;

use super::Reader;
use super::failures::Failures;
use super::schedule::Schedule;
use super::sleep::Awake;
use super::sweep::Sweep;
use crate::error::StoreError;
use crate::store::{Claim, Expects, FEW, Position, Taken, new_token};
use crate::telemetry::{TARGET, info};

/// A subscriber that tries again after a failure takes along those that would do so within this
/// time: in an outage a hundred subscribers ask no more often than one.
const TOGETHER: Duration = Duration::from_millis(750);
/// Transactions commit in another order than their rows are due, so a claim begins this much
/// earlier than the present.
const LATE: Duration = Duration::from_millis(500);

pub(super) struct Look {
    pub(super) reader: Arc<Reader>,
    /// Claims that have no answer yet.
    under_way: usize,
    /// What the next claim will find, judging by the last answer.
    expects: Expects,
    /// Rows up to here were taken.
    floor: Option<Position>,
    /// After a failure, whether the next claim begins at the start. If a claim from the place
    /// failed, it does: rows that the claim took without an answer may lie before the place. If a
    /// claim from the start failed, it does not: another one might fail again.
    sweeps: Option<bool>,
    sweep: Sweep,
    pub(super) schedule: Schedule,
    /// Absent if publishers wake it in any case.
    awake: Option<Awake>,
    pub(super) failures: Failures,
    pub(super) company: Company,
}

/// With whom it claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Company {
    /// In one statement with others.
    Others,
    /// Alone, to see whether the others are the reason why their statement fails.
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
            schedule: Schedule::new(now, options.min_poll, options.max_poll),
            awake: wakes_only_sleepers.then(Awake::new),
            failures: Failures::none(),
            company: Company::Others,
        }
    }

    pub(super) fn expects_plenty(&self) -> bool {
        self.expects == Expects::Plenty
    }

    fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// True when it polls soon, and may as well do so now.
    pub(super) fn polls_soon(&self, now: Instant) -> bool {
        self.is_idle() && self.schedule.polls_soon(now)
    }

    pub(super) fn polls(&self, now: Instant) -> bool {
        self.is_idle() && self.schedule.polls(now)
    }

    /// True when it should claim, if it has room. Of two claims the later may be answered first, so
    /// a subscriber with one worker has only one, and gets its rows in their order.
    pub(super) fn wants(&self, now: Instant) -> bool {
        let two = self.expects_plenty() && self.reader.subscriber.options.max_workers > 1;
        (self.is_idle() || two && self.under_way < 2)
            && self.schedule.wants(self.expects_plenty(), &self.reader.signal, now)
    }

    /// When to look at it again, as far as it depends on the clock.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        if !self.is_idle() {
            return None;
        }
        self.schedule.next(self.expects_plenty(), &self.reader.signal, now)
    }

    /// A claim, if there is room for one of its rows.
    pub(super) fn claim(&mut self, most: usize, now: Instant) -> Option<Claim> {
        if self.reader.signal.is_held() {
            return None;
        }
        let in_hand = self.reader.inbox.in_hand();
        let limit = self.reader.inbox.reserve(self.failures.leave_of(most))?;
        self.schedule.claims(&self.reader.signal, now);
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
        self.reader.pulse.claimed(now);
        self.reader.refused.store(false, Ordering::Relaxed);
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
        self.schedule.answered(taken, now);
        if let Some(last) = taken.rows.last() {
            let now = last.row.acquired_at.unwrap_or(last.row.next_attempt_at);
            let late = now.checked_sub(LATE).unwrap_or(now);
            let reached = Position::of(&last.row).min(Position { due: late, id: 0 });
            self.floor = if claim.after.is_none() && self.sweep.began_ahead_of(now) {
                // The clock went back: whatever is published now lies before the old place.
                Some(reached)
            } else {
                self.floor.max(Some(reached))
            };
        }
        self.expects = Expects::after(claim.limit, taken.rows.len());
        let (plenty, awake) = (self.expects_plenty(), self.awake.as_mut());
        let soon = awake.and_then(|it| it.claimed(taken.rows.len(), plenty, now));
        self.reader.sleep.set_awake(soon.is_some());
        if plenty {
            return;
        }
        let (signal, from_start) = (&self.reader.signal, claim.after.is_none());
        if !from_start {
            // There may be rows before the place where this claim began.
            signal.look_at(self.sweep.next(false));
        }
        self.schedule.waits(signal, taken, from_start, soon, now);
    }

    /// Notes a failure, all but its rest. The place is kept: a claim from the start may fail because
    /// of the dead rows that it walks over, as under a snapshot that somebody holds for hours.
    pub(super) fn failed(&mut self, claim: &Claim, failed: &StoreError, took: Duration) {
        self.reader.refused.store(true, Ordering::Relaxed);
        self.under_way -= 1;
        self.expects = Expects::Many;
        // The first failure may come from the walk over dead rows. Further ones are an outage.
        if claim.after.is_none() && self.sweeps.is_none() && !failed.unsent {
            self.sweep.failed(took);
        }
        self.sweeps = Some(claim.after.is_some());
        if !failed.transient {
            self.company = Company::Alone;
        } else if self.company == Company::Probes || !self.failures.are_many() {
            self.company = Company::Others;
        }
        self.reader.signal.look();
    }

    /// True when it is to try again soon, and may as well do so now.
    pub(super) fn tries_soon(&self, now: Instant) -> bool {
        let with_others = self.company == Company::Others;
        self.failures.passing
            && self.is_idle()
            && with_others
            && self.schedule.has_rested(now + TOGETHER)
    }

    pub(super) fn is_alone(&self) -> bool {
        self.company != Company::Others
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests;
