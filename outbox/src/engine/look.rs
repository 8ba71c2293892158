//! When one subscriber looks for rows, how many it takes, and where it begins.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Reader;
use super::backoff::Backoff;
use super::failures::Failures;
use super::sleep::Awake;
use super::sweep::Sweep;
use crate::store::{Claim, Expects, FEW, Position, Taken, new_token};

/// So many claims in vain may follow one another as fast as somebody wakes; each further
/// one rests. Anybody who may connect can send wakes.
const VAIN: u32 = 20;
const REST: Duration = Duration::from_millis(10);
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
    sweep: Sweep,
    polls: Backoff,
    poll_at: Instant,
    poll_wait: Duration,
    /// Absent if it is woken in any case.
    awake: Option<Awake>,
    failures: Failures,
    /// Claims that found nothing, one after the other.
    vain: u32,
    /// After a failure, or too much in vain.
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
            expects: Expects::Many,
            floor: None,
            sweep: Sweep::new(now, options.max_poll),
            polls: Backoff::of_polls(options.min_poll, options.max_poll),
            poll_at: now,
            poll_wait: Duration::ZERO,
            awake: wakes_only_sleepers.then(Awake::new),
            failures: Failures::none(),
            vain: 0,
            not_before: now,
            alone: false,
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
        let in_hand = self.reader.inbox.in_hand();
        let limit = self.reader.inbox.reserve(self.failures.leave_of(most))?;
        // Before the claim is sent, so that a wake during it makes for another one.
        self.reader.signal.clear();
        // Taken along before its time it has rested all the same.
        self.not_before = self.not_before.min(now);
        self.under_way += 1;
        let after = self.floor.filter(|_| now < self.sweep.next(self.expects_plenty()));
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
        self.under_way -= 1;
        self.sweep.taken(taken.rows.len());
        self.failures.end();
        self.alone = false;
        if claim.after.is_none() {
            let last = taken.rows.last().filter(|_| taken.rows.len() == claim.limit);
            let last = last.map(|last| Position::of(&last.row));
            self.sweep.ended(now.duration_since(sent), last);
        }
        if taken.rows.is_empty() {
            self.vain = self.vain.saturating_add(1);
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
            self.reader.signal.due_at(self.sweep.next(false));
        }
        if let Some(at) = taken.next.and_then(|next| now.checked_add(next)) {
            self.reader.signal.due_at(at);
        }
        self.poll_wait = soon.unwrap_or_else(|| self.polls.next());
        self.poll_at = now + self.poll_wait;
    }

    /// How long to rest after one more failure.
    pub(super) fn rest(&mut self, transient: bool) -> Duration {
        self.failures.again(transient)
    }

    pub(super) fn failed(&mut self, alone: bool, until: Instant) {
        self.reader.pulse.claim_failed();
        self.under_way -= 1;
        self.expects = Expects::Many;
        self.floor = None;
        self.alone = alone;
        self.reader.signal.wake();
        self.not_before = until;
    }

    /// True when it is to try again soon, and may as well do so now.
    pub(super) fn tries_soon(&self, now: Instant) -> bool {
        self.failures.pass() && self.rests() && !self.alone && self.not_before <= now + TOGETHER
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use std::time::SystemTime;

    use bytes::Bytes;

    use super::*;
    use crate::engine::Shared;
    use crate::extract::States;
    use crate::store::Claimed;
    use crate::store::memory::MemoryStore;
    use crate::subscriber::{Subscriber, debug_chain};
    use crate::telemetry::Sinks;

    const MS: Duration = Duration::from_millis(1);
    const HOUR: Duration = Duration::from_secs(3600);

    /// Polls once an hour, and has room for thousands of rows.
    fn look() -> (Look, Instant) {
        let store = MemoryStore::new(true);
        let render = Arc::new(debug_chain);
        let shared = Shared::new(store, render, crate::Publisher::default(), Sinks::default());
        let subscriber = Subscriber::new("s", "q", |_: crate::Context| async {})
            .max_workers(5000)
            .min_poll(HOUR)
            .max_poll(HOUR);
        let (states, counts) = (States::default(), crate::Stats::default());
        let one = Reader::new(subscriber, &shared, &states, &counts, &Arc::default());
        let look = Look::new(&Arc::new(one), false);
        let now = look.poll_at;
        (look, now)
    }

    fn at(ms: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + HOUR + ms * MS
    }

    /// So many rows due at that time, claimed a second later.
    fn rows(count: usize, due: SystemTime) -> Taken {
        let row = |id| Claimed::of_test(id, due, due + 1000 * MS, Bytes::new());
        Taken { rows: (1..).take(count).map(row).collect(), ..Taken::default() }
    }

    /// A claim of ten rows that gets these, and takes no time.
    fn gets(look: &mut Look, taken: &Taken, now: Instant) -> Claim {
        let claim = look.claim(10, now).expect("there is room");
        look.answered(&claim, taken, now, now);
        claim
    }

    #[test]
    fn who_got_all_it_asked_for_has_two_claims_under_way_but_for_one_worker() {
        let (mut look, now) = look();
        assert!(look.wants(now));
        look.claim(10, now).unwrap();
        assert!(!look.wants(now), "of one that expects nothing one is enough");
        for workers in [1, 2] {
            let (mut look, now) = self::look();
            Arc::get_mut(&mut look.reader).unwrap().subscriber.options.max_workers = workers;
            gets(&mut look, &rows(10, at(0)), now);
            for _ in 0..workers {
                assert!(look.wants(now) && look.expects_plenty());
                look.claim(10, now).unwrap();
            }
            assert!(!look.wants(now));
        }
    }

    #[test]
    fn who_got_less_rests_until_a_poll_a_wake_or_a_due_row() {
        let (mut look, now) = look();
        gets(&mut look, &rows(9, at(0)), now);
        assert!(!look.wants(now) && !look.expects_plenty());
        let polls = look.next(now).unwrap();
        assert!(polls > now + HOUR / 2 && polls <= now + HOUR && look.wants(polls));
        look.reader.signal.due_at(now + 70 * MS);
        assert_eq!(look.next(now), Some(now + 70 * MS));
        assert!(!look.wants(now + 69 * MS) && look.wants(now + 70 * MS));
        look.reader.signal.wake();
        assert!(look.wants(now));
        let told = Taken { next: Some(40 * MS), ..Taken::default() };
        gets(&mut look, &told, now);
        assert_eq!(look.next(now), Some(now + 40 * MS));
        let claim = look.claim(10, now).unwrap();
        look.reader.signal.wake();
        look.answered(&claim, &Taken::default(), now, now);
        assert!(look.wants(now), "woken during a claim");
    }

    #[test]
    fn who_got_many_or_has_many_in_hand_expects_as_many() {
        let (mut look, now) = look();
        let first = look.claim(FEW + 1, now).unwrap();
        look.answered(&first, &rows(FEW, at(0)), now, now);
        look.reader.inbox.fill(first.limit, std::iter::empty());
        let next = |_| gets(&mut look, &rows(1, at(0)), now).expects;
        let all: Vec<_> = (0..=FEW / 10).map(next).collect();
        // Nobody handles what is in hand.
        assert_eq!((all[0], all[FEW / 10]), (Expects::Many, Expects::Many));
        assert_eq!(all[1..FEW / 10], [Expects::Few; FEW / 10 - 1]);
    }

    #[test]
    fn a_claim_begins_where_the_last_one_ended_but_for_what_may_still_be_committed() {
        let (mut look, now) = look();
        assert_eq!(gets(&mut look, &rows(10, at(0)), now).after, None);
        let next = gets(&mut look, &rows(10, at(400)), now);
        assert_eq!(next.after, Some(Position { due: at(0), id: 10 }));
        // And no place is given up for an earlier one.
        gets(&mut look, &rows(10, at(0)), now);
        assert_eq!(look.floor, Some(Position { due: at(400), id: 10 }));
        // Due within the last half second when they were claimed.
        let (mut look, now) = self::look();
        let late = Claimed::of_test(1, at(0), at(100), Bytes::new());
        gets(&mut look, &Taken { rows: vec![late], ..Taken::default() }, now);
        assert_eq!(look.floor, Some(Position { due: at(100) - LATE, id: 0 }));
    }

    #[test]
    fn while_there_is_plenty_it_claims_from_the_start_now_and_then() {
        let (mut look, now) = look();
        gets(&mut look, &rows(10, at(0)), now);
        assert!(gets(&mut look, &rows(10, at(0)), now + 99 * MS).after.is_some());
        assert_eq!(look.claim(10, now + 100 * MS).unwrap().after, None);
        assert_eq!(look.sweep.next(true), now + 200 * MS, "it has begun");
    }

    #[test]
    fn of_many_that_came_back_it_claims_the_rest_soon() {
        let five_seconds = 5000 * MS;
        for (due, next) in [(at(0), 100 * MS), (at(500), five_seconds)] {
            let (mut look, now) = look();
            gets(&mut look, &rows(10, at(400)), now);
            let sweep = now + five_seconds;
            assert_eq!(gets(&mut look, &rows(10, due), sweep).after, None);
            // Many are taken besides: a claim from the start would walk over them.
            for _ in 0..100 {
                gets(&mut look, &rows(10, at(400)), sweep);
            }
            assert!(gets(&mut look, &rows(10, at(400)), sweep + next - MS).after.is_some());
            assert_eq!(gets(&mut look, &rows(10, at(400)), sweep + next).after, None);
        }
    }

    #[test]
    fn who_found_less_behind_its_place_looks_before_it() {
        let (mut look, now) = look();
        gets(&mut look, &rows(10, at(0)), now);
        assert!(gets(&mut look, &rows(1, at(0)), now).after.is_some());
        // A claim from the start cost nothing, so the next one is one, and now.
        assert!(look.wants(now));
        assert_eq!(look.claim(10, now).unwrap().after, None);

        let (mut look, now) = self::look();
        gets(&mut look, &rows(10, at(0)), now);
        (0..3).for_each(|_| look.sweep.ended(10 * MS, None));
        gets(&mut look, &rows(1, at(0)), now);
        assert!(!look.wants(now), "it met dead rows");
        assert_eq!(look.next(now), Some(now + 200 * MS));
    }

    #[test]
    fn after_a_failure_it_begins_at_the_start_and_not_at_once() {
        let (mut look, now) = look();
        gets(&mut look, &rows(10, at(0)), now);
        gets(&mut look, &rows(9, at(0)), now);
        assert!(look.poll_at > now + HOUR / 2 && look.claim(10, now).is_some());
        let rest = look.rest(true);
        look.failed(false, now + rest);
        assert!(look.floor.is_none() && !look.expects_plenty() && !look.wants(now));
        let again = look.next(now).unwrap();
        assert!(again >= now + 50 * MS && again <= now + 150 * MS);
        assert!(look.wants(again), "and without a poll or a wake");
        assert_eq!(gets(&mut look, &rows(10, at(0)), again).after, None);
    }

    #[test]
    fn who_rests_after_a_failure_goes_along_with_who_tries_again() {
        let (mut look, now) = look();
        look.claim(10, now).unwrap();
        let until = now + TOGETHER + MS;
        look.rest(true);
        look.failed(false, until);
        assert!(!look.tries_soon(now) && look.tries_soon(now + MS) && !look.wants(now + MS));
        // Half of ten.
        gets(&mut look, &rows(5, at(0)), now + MS);
        assert!(look.wants(now + MS) && !look.tries_soon(now + MS), "it rests no more");
        look.rest(false);
        assert!(!look.tries_soon(until), "what is refused for good fails the others");
    }

    #[test]
    fn a_refused_statement_for_several_is_tried_for_each_alone_at_once() {
        let (mut look, now) = look();
        look.claim(10, now).unwrap();
        look.failed(true, now);
        assert!(look.alone && look.wants(now));
        gets(&mut look, &Taken::default(), now);
        assert!(!look.alone);
    }
}
