//! Tests with a stop in the middle of a delivery: nothing is started after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use smallvec::SmallVec;
use tokio::time::{Instant, sleep};

use super::inbox::Job;
use super::settle::Settlement;
use super::unanswered::{Claims, HOUR, TTL, Unanswered, claimed, holding};
use super::{Reader, Shared, deliver};
use crate::extract::States;
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::subscriber::{AckPolicy, Subscriber, debug_chain};
use crate::telemetry::{Sinks, Stats};

fn shared(store: &MemoryStore) -> Shared<MemoryStore> {
    let publisher = crate::Publisher::default();
    Shared::new(store.clone(), Arc::new(debug_chain), publisher, Sinks::default())
}

/// Runs these together, whose handler stops the app. How many ran, and how many were given back.
async fn run<S: Store>(
    shared: &Shared<S>,
    with: impl Fn(Subscriber) -> Subscriber,
    jobs: Vec<Job>,
) -> (usize, usize) {
    let (runs, stop) = (Arc::new(AtomicUsize::new(0)), shared.stop.clone());
    let count = Arc::clone(&runs);
    let subscriber = Subscriber::batches("s", "q", 9, move |batch: Vec<crate::Context>| {
        count.fetch_add(batch.len(), Ordering::SeqCst);
        stop.cancel();
        async {}
    });
    let subscriber = with(subscriber.lease_ttl(HOUR));
    let (states, counts) = (States::default(), Stats::default());
    let reader = Reader::new(subscriber, shared, &states, &counts, &Arc::default());
    let jobs: SmallVec<_> = jobs.into();
    let settled = deliver(shared, &Arc::new(reader), jobs, Instant::now(), None).await;
    let back = |one: &Settlement| matches!(one, Settlement::Release { .. });
    let back = settled.iter().filter(|one| back(&one.settlement)).count();
    (runs.load(Ordering::SeqCst), back)
}

#[tokio::test(start_paused = true)]
async fn a_suspect_that_waited_for_its_batch_is_not_started_after_the_stop() {
    let store = holding(3).await;
    // Whoever claimed it first has died.
    claimed(&store, 1).await;
    sleep(2 * TTL).await;
    let mut jobs = claimed(&store, 3).await;
    for job in &mut jobs {
        job.deadline = Instant::now() + HOUR;
    }
    let ran = run(&shared(&store), |it| it.max_deliveries(1), jobs).await;
    assert_eq!(ran, (2, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_to_be_acked_first_is_neither_acked_nor_started_after_the_stop() {
    let store = holding(3).await;
    let shared = shared(&store);
    shared.stop.cancel();
    let ran = run(&shared, |it| it.ack(AckPolicy::AckFirst), claimed(&store, 3).await).await;
    assert_eq!((ran, store.rows().len()), ((0, 3), 3));
}

/// Its handler would be dropped when it has hardly begun.
#[tokio::test(start_paused = true)]
async fn what_is_acked_first_when_the_drain_is_over_is_neither_gone_nor_started() {
    let store = holding(1).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    let mut jobs = claimed(&store, 1).await;
    jobs[0].deadline = Instant::now() + HOUR;
    shared.store.asked.locked.store(jobs[0].claimed.row.id, Ordering::SeqCst);
    let drain = async {
        sleep(TTL).await;
        assert_eq!((shared.quiet.running(), shared.quiet.begun()), (1, 0));
        shared.cut_off.cancel();
        sleep(TTL).await;
        shared.store.asked.locked.store(-1, Ordering::SeqCst);
    };
    let (ran, ()) = tokio::join!(run(&shared, |it| it.ack(AckPolicy::AckFirst), jobs), drain);
    assert_eq!((ran, store.rows().len()), ((0, 0), 1));
}
