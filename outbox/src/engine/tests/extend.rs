//! Tests of leases that are extended by several statements.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::unanswered::{Claims, Unanswered, claimed, holding};
use crate::engine::extend::{extend, keep};
use crate::engine::inbox::Job;
use crate::engine::lease::Leases;
use crate::extract::Context;
use crate::store::Lease;

const TTL: Duration = Duration::from_secs(60);

fn lease_of(job: &Job) -> Lease {
    let row = &job.claimed.row;
    Lease { id: row.id, token: row.acquired_token.expect("it is claimed") }
}

#[tokio::test(start_paused = true)]
async fn leases_for_which_the_server_has_no_time_at_once_are_extended_in_parts() {
    let store = holding(5).await;
    let (leases, jobs) = (Leases::default(), claimed(&store, 5).await);
    let contexts: Vec<_> = jobs.iter().map(|_| Context::of_test("{}")).collect();
    let hold = |(job, context)| leases.hold(lease_of(job), Instant::now(), TTL, context);
    let _holding: Vec<_> = jobs.iter().zip(&contexts).map(hold).collect();
    let store = Unanswered::new(&store, Claims::Answered);
    store.asked.locked.store(-1, Ordering::SeqCst);
    store.asked.most.store(1, Ordering::SeqCst);
    tokio::select! {
        () = keep(&leases, &store, TTL) => {}
        () = sleep(2 * TTL) => {}
    }
    assert!(contexts.iter().all(|one| !one.delivery().watch.is_lost()));
}

/// The time for an answer is that of the leases of the statement.
#[tokio::test(start_paused = true)]
async fn a_lease_with_little_time_leaves_those_of_other_statements_theirs() {
    let store = Unanswered::new(&holding(0).await, Claims::Answered);
    store.asked.locked.store(-1, Ordering::SeqCst);
    store.asked.slow.store(2_800, Ordering::SeqCst);
    let (leases, mut holding) = (Leases::default(), Vec::new());
    let contexts: Vec<_> = (0..=1_000).map(|_| Context::of_test("{}")).collect();
    let begun = Instant::now();
    sleep(Duration::from_secs(57)).await;
    for (id, context) in (1..).zip(&contexts) {
        // Nobody has these rows: an answer that comes says that their leases are lost.
        let since = if id == 1 { begun } else { Instant::now() - TTL / 2 };
        holding.push(leases.hold(Lease { id, token: Uuid::nil() }, since, TTL, context));
    }
    extend(&leases, &store).await;
    let answered = contexts.iter().filter(|one| one.delivery().watch.is_lost()).count();
    assert_eq!(answered, contexts.len());
}

/// The pace is that of the shortest lease of the process.
#[tokio::test(start_paused = true)]
async fn a_long_lease_that_cannot_be_extended_is_not_tried_as_often_as_a_short_one() {
    for locked in [1, 0] {
        let store = Unanswered::new(&holding(1).await, Claims::Answered);
        store.asked.locked.store(locked, Ordering::SeqCst);
        let (leases, context) = (Leases::default(), Context::of_test("{}"));
        let lease = Lease { id: 1, token: Uuid::nil() };
        let _holding = leases.hold(lease, Instant::now(), TTL, &context);
        tokio::select! {
            () = keep(&leases, &store, Duration::from_millis(100)) => {}
            () = sleep(TTL) => {}
        }
        let tries = store.asked.extends.load(Ordering::SeqCst);
        assert!((3..=6).contains(&tries), "{tries} tries, locked: {locked}");
    }
}

/// Their statement is sent behind that for the others.
#[tokio::test(start_paused = true)]
async fn leases_of_a_second_statement_are_tried_again_as_often_as_those_of_the_first() {
    let store = Unanswered::new(&holding(0).await, Claims::Answered);
    store.asked.locked.store(-1, Ordering::SeqCst);
    store.asked.locked_to.store(2_000, Ordering::SeqCst);
    store.asked.slow.store(500, Ordering::SeqCst);
    let leases = Leases::default();
    let contexts: Vec<_> = (0..=1_000).map(|_| Context::of_test("{}")).collect();
    let hold =
        |(id, context)| leases.hold(Lease { id, token: Uuid::nil() }, Instant::now(), TTL, context);
    let _holding: Vec<_> = (1..).zip(&contexts).map(hold).collect();
    tokio::select! {
        () = keep(&leases, &store, TTL) => {}
        () = sleep(TTL * 99 / 100) => {}
    }
    let tries = store.asked.extends.load(Ordering::SeqCst);
    assert_eq!(tries, 8, "two for each sixth of the lease from the third on");
}

/// On a connection that is dead, as others are not.
#[tokio::test(start_paused = true)]
async fn who_holds_a_lease_is_not_asked_for_so_long_that_others_run_out() {
    let second = Duration::from_secs(1);
    let store = holding(2).await;
    let jobs = claimed(&store, 2).await;
    let store = Unanswered::new(&store, Claims::Answered);
    store.asked.locked.store(lease_of(&jobs[0]).id, Ordering::SeqCst);
    store.asked.unheld.store(true, Ordering::SeqCst);
    let (leases, locked, other) =
        (Leases::default(), Context::of_test("{}"), Context::of_test("{}"));
    let _locked = leases.hold(lease_of(&jobs[0]), Instant::now(), TTL, &locked);
    let admitted = async {
        sleep(TTL / 3 + second).await;
        // It waited for its worker: 20 s are left of it.
        let _other = leases.hold(lease_of(&jobs[1]), Instant::now() - 2 * TTL / 3, TTL, &other);
        sleep(TTL / 2).await;
        other.delivery().watch.is_lost()
    };
    tokio::select! {
        () = keep(&leases, &store, TTL) => {}
        lost = admitted => assert!(!lost, "it could have been extended"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_that_cannot_wait_for_the_answer_costs_no_long_one() {
    let store = holding(2).await;
    let jobs = claimed(&store, 2).await;
    let slow = Unanswered::new(&store, Claims::Answered);
    // Extensions are answered, and nobody has locked a row.
    slow.asked.locked.store(-1, Ordering::SeqCst);
    slow.asked.slow.store(700, Ordering::SeqCst);
    let (leases, begun, second) = (Leases::default(), Instant::now(), Duration::from_secs(1));
    let context = Context::of_test("{}");
    let _long = leases.hold(lease_of(&jobs[0]), begun, 60 * second, &context);
    // One of them is always about to run out.
    let short = (0..5).map(async |n| {
        sleep(second / 5 * n).await;
        loop {
            let context = Context::of_test("{}");
            let _short = leases.hold(lease_of(&jobs[1]), Instant::now(), second, &context);
            context.delivery().watch.lost().await;
        }
    });
    tokio::select! {
        () = keep(&leases, &slow, second) => {}
        () = async { drop(join_all(short).await) } => {}
        () = sleep(300 * second) => {}
    }
    assert!(!context.delivery().watch.is_lost());
}
