//! Tests of what a subscriber's look does after each answer.

use std::time::SystemTime;

use bytes::Bytes;

use super::*;
use crate::engine::Shared;
use crate::engine::backoff::Backoff;
use crate::engine::schedule::{LONG, SOON, STUCK};
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
    let now = look.schedule.poll_at;
    (look, now)
}

fn at(ms: u32) -> SystemTime {
    SystemTime::UNIX_EPOCH + HOUR + ms * MS
}

/// `count` rows that are due at that time, claimed a second later.
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

/// A claim that fails for now; returns how long it rests.
fn fails(look: &mut Look, claim: &Claim, now: Instant, took: Duration) -> Duration {
    let failed = StoreError::new("claim", "no answer", true);
    let rest = look.failures.again(&failed, claim.limit);
    look.failed(claim, &failed, took);
    look.schedule.not_before = now + rest;
    rest
}

#[test]
fn a_claim_from_the_start_that_fails_is_followed_by_one_from_its_place() {
    let (mut look, now) = look();
    gets(&mut look, &rows(10, at(0)), now);
    // Claims from the start walk over rows that nobody may clear away.
    let (mut now, mut begun) = (look.sweep.next(true), now);
    for _ in 0..9 {
        begun = now;
        let claim = look.claim(10, now).unwrap();
        assert_eq!(claim.after, None);
        now += 5000 * MS;
        now += fails(&mut look, &claim, now, 5000 * MS);
        assert!(gets(&mut look, &rows(10, at(0)), now).after.is_some());
        now = now.max(look.sweep.next(true));
    }
    assert!(now >= begun + 10_000 * MS, "they get more seldom");
}

#[test]
fn an_outage_is_not_taken_for_dead_rows() {
    let (mut look, mut now) = look();
    gets(&mut look, &rows(10, at(0)), now);
    for _ in 0..30 {
        let claim = look.claim(10, now).unwrap();
        now += 30_000 * MS;
        now += fails(&mut look, &claim, now, 30_000 * MS);
    }
    gets(&mut look, &rows(10, at(0)), now);
    gets(&mut look, &rows(10, at(0)), now);
    assert!(look.sweep.next(true) <= now + 5_000 * MS);
}

#[test]
fn who_fails_again_and_again_claims_apart_from_others() {
    let (mut look, now) = look();
    let once_more = |look: &mut Look| {
        let claim = look.claim(10, now).unwrap();
        fails(look, &claim, now, Duration::ZERO);
        look.schedule.not_before = now;
        (look.failures.are_many(), look.company)
    };
    let all = [(); 4].map(|()| once_more(&mut look).0);
    assert_eq!(all, [false, false, true, true]);
    look.company = Company::Probes;
    assert_eq!(once_more(&mut look).1, Company::Others, "it may be an outage");
    look.company = Company::Alone;
    assert_eq!(once_more(&mut look).1, Company::Alone, "another one had an answer");
    gets(&mut look, &Taken::default(), now);
    assert!(!look.is_alone() && !look.failures.are_many());
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

/// What is published by the new time lies before the old place, and claims from the start are rare
/// where they are expensive.
#[test]
fn after_the_clock_went_back_it_begins_where_it_is_by_the_new_time() {
    let (mut look, mut now) = look();
    let mut gets_slowly = |look: &mut Look, due| {
        now += 300 * MS;
        let claim = look.claim(10, now).unwrap();
        look.answered(&claim, &rows(1, due), now, now + 10 * MS);
        assert_eq!(claim.after, None);
        now
    };
    for _ in 0..4 {
        gets_slowly(&mut look, at(60_000));
    }
    let now = gets_slowly(&mut look, at(0)) + 10 * MS;
    look.reader.signal.wake();
    assert!(look.wants(now));
    let woken = look.claim(10, now).unwrap();
    assert_eq!(woken.after, Some(Position { due: at(0), id: 1 }));
    assert!(look.sweep.next(false) > now, "and none from the start would have been next");
}

#[test]
fn what_came_back_and_a_late_answer_are_not_taken_for_a_clock_that_went_back() {
    let (mut look, now) = look();
    gets(&mut look, &rows(10, at(0)), now);
    let now = now + 100 * MS;
    let [start, from_place] = [(); 2].map(|()| look.claim(10, now).unwrap());
    assert!(start.after.is_none() && from_place.after.is_some());
    look.answered(&from_place, &rows(10, at(5000)), now, now);
    look.answered(&start, &rows(10, at(0)), now, now);
    let place = Some(Position { due: at(5000), id: 10 });
    assert_eq!(look.floor, place);
    let old = Claimed::of_test(1, at(0), at(9000), Bytes::new());
    let old = Taken { rows: vec![old], ..Taken::default() };
    assert_eq!(gets(&mut look, &old, now + 100 * MS).after, None);
    assert_eq!(look.floor, place);
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
    assert!(look.schedule.poll_at > now + HOUR / 2);
    look.sweep.begins(now, None);
    (0..3).for_each(|_| look.sweep.ended(10 * MS, None));
    let claim = look.claim(10, now).unwrap();
    assert!(claim.after.is_some());
    let rest = fails(&mut look, &claim, now, Duration::ZERO);
    assert!(!look.expects_plenty() && !look.wants(now));
    let again = look.next(now).unwrap();
    assert!(again >= now + 50 * MS && again <= now + 150 * MS && again == now + rest);
    assert!(look.wants(again), "and without a poll or a wake");
    assert_eq!(gets(&mut look, &rows(10, at(0)), again).after, None);
}

#[test]
fn who_rests_after_a_failure_goes_along_with_who_tries_again() {
    let (mut look, now) = look();
    let claim = look.claim(10, now).unwrap();
    let until = now + TOGETHER + MS;
    fails(&mut look, &claim, now, Duration::ZERO);
    look.schedule.not_before = until;
    assert!(!look.tries_soon(now) && look.tries_soon(now + MS) && !look.wants(now + MS));
    // Half of ten.
    gets(&mut look, &rows(5, at(0)), now + MS);
    assert!(look.wants(now + MS) && !look.tries_soon(now + MS), "it rests no more");
    look.failures.again(&StoreError::new("claim", "refused", false), claim.limit);
    assert!(!look.tries_soon(until), "what is refused for good fails the others");
}

#[test]
fn a_refused_statement_for_several_is_tried_for_each_alone_at_once() {
    let (mut look, now) = look();
    let claim = look.claim(10, now).unwrap();
    look.failed(&claim, &StoreError::new("claim", "refused", false), Duration::ZERO);
    assert!(look.is_alone() && look.wants(now));
    gets(&mut look, &Taken::default(), now);
    assert!(!look.is_alone());
}

#[test]
fn who_found_a_row_polls_as_often_as_at_first() {
    let (mut look, now) = look();
    look.schedule.polls = Backoff::of_polls(MS, HOUR);
    for _ in 0..30 {
        look.schedule.vain = 0;
        gets(&mut look, &Taken::default(), now);
        look.schedule.not_before = now;
    }
    assert!(look.schedule.poll_wait > HOUR / 2);
    gets(&mut look, &rows(1, at(0)), now);
    assert!(look.schedule.poll_wait <= MS);
}

/// Somebody has locked what was due, and tells nobody when it lets go.
#[test]
fn who_was_woken_for_nothing_that_it_knows_of_polls_as_often_as_at_first() {
    let (mut look, now) = look();
    let vain = |look: &mut Look, taken: &Taken| {
        look.schedule.vain = 0;
        gets(look, taken, now);
        look.schedule.not_before = now;
        look.schedule.poll_wait
    };
    let often = |look: &mut Look| {
        look.schedule.polls = Backoff::of_polls(MS, HOUR);
        for _ in 0..30 {
            vain(look, &Taken::default());
        }
    };
    often(&mut look);
    assert!(vain(&mut look, &Taken::default()) > HOUR / 2, "it polled");
    look.reader.signal.wake();
    assert!(vain(&mut look, &Taken::default()) <= MS);
    often(&mut look);
    look.reader.signal.wake();
    let later = Taken { next: Some(HOUR), ..Taken::default() };
    assert!(vain(&mut look, &later) > HOUR / 2, "it was for that row");
    look.reader.signal.wake();
    assert!(vain(&mut look, &later) <= MS, "that one it knew of");
}

/// A row whose lease is over, and which somebody keeps locked.
#[test]
fn a_row_that_is_said_to_come_and_does_not_is_asked_for_ever_more_seldom() {
    let (mut look, mut now) = look();
    let stuck = Taken { next: Some(SOON), ..Taken::default() };
    let mut waits = |look: &mut Look, count: u32| {
        let wait = |_| {
            gets(look, &stuck, now);
            let next = look.reader.signal.at(now).unwrap();
            let wait = next - now;
            now = next;
            wait
        };
        (0..count).map(wait).collect::<Vec<_>>()
    };
    let first = waits(&mut look, 20);
    assert_eq!(first[..STUCK as usize], [SOON; STUCK as usize]);
    // Behind it there may be another row, which no answer tells of.
    assert!(first[STUCK as usize..].is_sorted() && first[19] == LONG, "{first:?}");
    assert_eq!(first[STUCK as usize], 2 * SOON);
    gets(&mut look, &rows(1, at(0)), Instant::now());
    assert_eq!(waits(&mut look, 1), [SOON]);
}
