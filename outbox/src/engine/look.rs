//! When one subscriber looks for rows, how many it takes, and where it begins.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Reader;
use super::backoff::Backoff;
use super::sleep::Awake;
use crate::store::{Claim, Position, Taken, new_token};

/// Dead rows lie before the living ones, many if something keeps the database from
/// clearing them away: so a claim begins where the last one ended. It does not see what
/// came back or was committed late, so one in twenty of the time is spent on claims
/// from the start, and while there is plenty to do not more than ten a second.
const SWEEP_SHARE: u32 = 20;
const SWEEP_EVERY: Duration = Duration::from_millis(100);
/// A claim from the start that took no longer met no dead rows to speak of.
const CHEAP: Duration = Duration::from_millis(5);
/// Transactions commit in another order than their rows are due: it begins this much
/// earlier than the present.
const LATE: Duration = Duration::from_millis(500);

pub(super) struct Look {
    pub(super) reader: Arc<Reader>,
    /// Claims of it that are under way.
    under_way: usize,
    /// The last answer was as many rows as were asked for: there are more.
    plenty: bool,
    /// Rows up to here were taken.
    floor: Option<Position>,
    /// When the last claim from the start was sent, and how long it took.
    sweep: (Instant, Duration),
    polls: Backoff,
    poll_at: Instant,
    poll_wait: Duration,
    /// Absent if it is woken in any case.
    awake: Option<Awake>,
    errors: Backoff,
    /// After a failure.
    not_before: Instant,
    /// Claims in a statement of its own.
    pub(super) alone: bool,
}

impl Look {
    pub(super) fn new(reader: &Arc<Reader>, wakes_only_sleepers: bool) -> Self {
        let options = &reader.subscriber.options;
        let now = Instant::now();
        Self {
            reader: Arc::clone(reader),
            under_way: 0,
            plenty: false,
            floor: None,
            sweep: (now, Duration::ZERO),
            polls: Backoff::of_polls(options.min_poll, options.max_poll),
            poll_at: now,
            poll_wait: Duration::ZERO,
            awake: wakes_only_sleepers.then(Awake::new),
            errors: Backoff::of_errors(),
            not_before: now,
            alone: false,
        }
    }

    pub(super) fn expects_many(&self) -> bool {
        self.plenty
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

    /// True when it should claim, if it has room.
    pub(super) fn wants(&self, now: Instant) -> bool {
        let free = if self.plenty { self.under_way < 2 } else { self.rests() };
        free && self.not_before <= now
            && (self.plenty
                || self.poll_at <= now
                || self.reader.signal.at(now).is_some_and(|at| at <= now))
    }

    /// When to look at it again, as far as it depends on the clock.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        if !self.rests() {
            return None;
        }
        let at = self.reader.signal.at(now).map_or(self.poll_at, |at| at.min(self.poll_at));
        let at = if self.plenty { now } else { at }.max(self.not_before);
        // What is wanted now waits for room, and the inbox tells of that.
        (at > now).then_some(at)
    }

    /// A claim, if there is room for one of its rows.
    pub(super) fn claim(&mut self, most: usize, now: Instant) -> Option<Claim> {
        let limit = self.reader.inbox.reserve(most)?;
        // Before the claim is sent, so that a wake during it makes for another one.
        self.reader.signal.clear();
        self.under_way += 1;
        let after = self.floor.filter(|_| now < self.sweep_at());
        if after.is_none() {
            self.sweep.0 = now;
        }
        let subscriber = &self.reader.subscriber;
        Some(Claim {
            queues: subscriber.shared_queues(),
            limit,
            lease_ttl: subscriber.options.lease_ttl,
            token: new_token(),
            after,
            max_deliveries: subscriber.options.max_deliveries,
            expected: self.plenty,
        })
    }

    pub(super) fn answered(&mut self, claim: &Claim, taken: &Taken, sent: Instant, now: Instant) {
        self.reader.teller.fetched(taken.rows.len());
        self.reader.pulse.claimed(now);
        self.under_way -= 1;
        self.errors.reset();
        self.alone = false;
        if claim.after.is_none() {
            // One that took long for another reason does not count in full.
            let most = 2 * self.sweep.1.max(CHEAP / 4);
            self.sweep.1 = now.duration_since(sent).min(most);
        }
        if !taken.rows.is_empty() {
            self.polls.reset();
        }
        if let Some(last) = taken.rows.last() {
            let now = last.row.acquired_at.unwrap_or(last.row.next_attempt_at);
            let late = now.checked_sub(LATE).unwrap_or(now);
            let reached = Position::of(&last.row).min(Position { due: late, id: 0 });
            self.floor = self.floor.max(Some(reached));
        }
        self.plenty = taken.rows.len() == claim.limit;
        let awake = self.awake.as_mut();
        let soon = awake.and_then(|it| it.claimed(taken.rows.len(), self.plenty, now));
        self.reader.sleep.set_awake(soon.is_some());
        if self.plenty {
            return;
        }
        if claim.after.is_some() {
            // There may be rows before the place where it began.
            self.reader.signal.due_at(self.sweep_at());
        }
        if let Some(at) = taken.next.and_then(|next| now.checked_add(next)) {
            self.reader.signal.due_at(at);
        }
        self.poll_wait = soon.unwrap_or_else(|| self.polls.next());
        self.poll_at = now + self.poll_wait;
    }

    /// When to claim from the start again.
    fn sweep_at(&self) -> Instant {
        let (swept, took) = self.sweep;
        match (self.plenty, took > CHEAP) {
            (true, _) => swept + SWEEP_EVERY.max(took * SWEEP_SHARE),
            (false, true) => swept + took * SWEEP_SHARE,
            // It costs no more than any other claim.
            (false, false) => swept,
        }
    }

    pub(super) fn failed(&mut self, alone: bool, now: Instant) {
        self.reader.pulse.claim_failed();
        self.under_way -= 1;
        self.plenty = false;
        self.floor = None;
        self.alone = alone;
        self.reader.signal.wake();
        if !alone {
            self.not_before = now + self.errors.next();
        }
    }
}
