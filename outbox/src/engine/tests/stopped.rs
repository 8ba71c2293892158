//! Tests with a stop in the middle of a delivery or of a claim: nothing starts after it, and the
//! stop comes to an end.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::expiring;
use super::locked::{ANSWERED, claimed_for_long};
use super::unanswered::{Claims, HOUR, TTL, Unanswered, acks, claimed, holding, reader};
use crate::engine::inbox::Job;
use crate::engine::later::settle;
use crate::engine::lost::LAST_TRY;
use crate::engine::results::{Results, Sender, Ways};
use crate::engine::settlement::Settlement;
use crate::engine::{Engine, Few, Reader, Settings, Shared, claimer, deliver};
use crate::extract::States;
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::subscriber::{AckPolicy, Outcome, Subscriber, debug_chain};
use crate::telemetry::{Sinks, Stats};

fn shared(store: &MemoryStore) -> Shared<MemoryStore> {
    let publisher = crate::Publisher::default();
    Shared::new(store.clone(), Arc::new(debug_chain), publisher, Sinks::default())
}

/// Runs these jobs together, with a handler that stops the app, and settles them. Returns how many
/// ran, how many were given back, and how many were reported as dispatched.
async fn run<S: Store>(
    shared: &Shared<S>,
    with: impl Fn(Subscriber) -> Subscriber,
    jobs: Vec<Job>,
) -> (usize, usize, u64) {
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
    settle(&shared.store, settled.into_iter().map(|one| *one).collect()).await;
    (runs.load(Ordering::SeqCst), back, counts.subscribers()[0].dispatched)
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
    assert_eq!(ran, (2, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn what_is_to_be_acked_first_is_neither_acked_nor_started_after_the_stop() {
    let store = holding(3).await;
    let due = || store.rows().iter().map(|row| row.next_attempt_at).collect::<Vec<_>>();
    let before = due();
    sleep(TTL).await;
    let shared = shared(&store);
    shared.stop.cancel();
    let jobs = claimed_for_long(&store, 3).await;
    let ran = run(&shared, |it| it.ack(AckPolicy::AckFirst), jobs).await;
    assert_eq!((ran, store.rows().len()), ((0, 3, 0), 3));
    assert_eq!(due(), before, "as if it had not been claimed");
}

/// Begins to ack a batch of three first, with this many results that wait and nobody who writes
/// them; stops when the second ack has begun. Returns how many handlers have started before the
/// drain's time is over, and how many results are handed over before and afterwards.
async fn stopped_between_acks(waiting: usize) -> (usize, usize, usize) {
    let store = holding(3).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    let jobs = Few::from_vec(claimed_for_long(&store, 3).await);
    shared.store.asked.locked.store(jobs[1].claimed.row.id, Ordering::SeqCst);
    let started = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&started);
    let subscriber = Subscriber::batches("s", "q", 3, move |batch: Vec<crate::Context>| {
        count.fetch_add(batch.len(), Ordering::SeqCst);
        sleep(HOUR)
    });
    let subscriber = subscriber.ack(AckPolicy::AckFirst).lease_ttl(HOUR);
    let (states, counts) = (States::default(), Stats::default());
    let reader = Arc::new(Reader::new(subscriber, &shared, &states, &counts, &Arc::default()));
    let results = Arc::<Results>::default();
    let sender = Sender::new(&[(); 3].map(|()| Arc::clone(&results)));
    for ack in acks(&vec![0; waiting]) {
        sender.send(Box::new(ack)).await;
    }
    let stop = async {
        sleep(TTL).await;
        shared.stop.cancel();
        shared.store.asked.locked.store(-1, Ordering::SeqCst);
        sleep(TTL).await;
        let (started, mut taken) = (started.load(Ordering::SeqCst), 0);
        while let Ok(Some(batch)) = timeout(TTL, results.next()).await {
            taken += batch.len();
        }
        shared.cut_off.cancel();
        (started, taken - waiting)
    };
    let delivery = deliver(&shared, &reader, jobs, Instant::now(), Some(&sender));
    let (settled, (started, early)) = tokio::join!(delivery, stop);
    assert_eq!(store.rows().len(), 1);
    (started, early, settled.len())
}

/// Nobody extends its lease any more, and it would count as a row that its process left behind.
#[tokio::test(start_paused = true)]
async fn what_is_not_acked_first_any_more_is_given_back_before_the_others_have_run() {
    assert_eq!(stopped_between_acks(0).await, (2, 1, 0));
}

/// Their rows are gone: if the drain's time were over before they start, they would be, too.
#[tokio::test(start_paused = true)]
async fn what_is_acked_first_waits_for_no_room_to_give_others_back() {
    assert_eq!(stopped_between_acks(4000).await, (2, 0, 1));
}

/// Somebody has the row before it locked.
#[tokio::test(start_paused = true)]
async fn what_expires_while_it_waits_to_be_acked_first_is_not_started() {
    let store = expiring([HOUR, TTL]).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    let jobs = claimed_for_long(&store, 2).await;
    shared.store.asked.locked.store(jobs[0].claimed.row.id, Ordering::SeqCst);
    let unlocks = async {
        sleep(2 * TTL).await;
        shared.store.asked.locked.store(-1, Ordering::SeqCst);
    };
    let acked_first = |it: Subscriber| it.ack(AckPolicy::AckFirst);
    let (ran, ()) = tokio::join!(run(&shared, acked_first, jobs), unlocks);
    assert_eq!((ran, store.dead_letters().len()), ((1, 0, 1), 1));
}

/// It has no row any more, and would be gone without a run.
#[tokio::test(start_paused = true)]
async fn what_is_acked_first_runs_though_another_of_its_batch_has_expired() {
    let store = expiring([HOUR, TTL]).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    let jobs = Few::from_vec(claimed_for_long(&store, 2).await);
    shared.store.asked.locked.store(jobs[0].claimed.row.id, Ordering::SeqCst);
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    // A plain fn, which may have waited for its thread.
    let subscriber = Subscriber::batches("s", "q", 2, move |batch: Vec<crate::Context>| {
        let count = Arc::clone(&count);
        crate::__private::batch::blocking(batch, move |all| {
            count.fetch_add(all.len(), Ordering::SeqCst);
            all.iter().map(|_| Ok(Outcome::Ack)).collect()
        })
    });
    let subscriber = subscriber.ack(AckPolicy::AckFirst).lease_ttl(HOUR);
    let (states, counts) = (States::default(), Stats::default());
    let reader = Arc::new(Reader::new(subscriber, &shared, &states, &counts, &Arc::default()));
    let unlocks = async {
        sleep(2 * TTL).await;
        shared.store.asked.locked.store(-1, Ordering::SeqCst);
    };
    let delivery = deliver(&shared, &reader, jobs, Instant::now(), None);
    let (settled, ()) = tokio::join!(delivery, unlocks);
    assert_eq!((runs.load(Ordering::SeqCst), settled.len(), store.rows().len()), (1, 1, 1));
}

/// Otherwise its handler would be dropped when it has hardly begun. Its lease ends at once.
#[tokio::test(start_paused = true)]
async fn what_is_acked_first_when_the_drain_is_over_is_neither_gone_nor_started() {
    let store = holding(1).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    let mut jobs = claimed(&store, 1).await;
    jobs[0].deadline = Instant::now() + HOUR;
    shared.store.asked.locked.store(jobs[0].claimed.row.id, Ordering::SeqCst);
    let drain = async {
        sleep(TTL).await;
        shared.cut_off.cancel();
        sleep(TTL).await;
        shared.store.asked.locked.store(-1, Ordering::SeqCst);
    };
    let (ran, ()) = tokio::join!(run(&shared, |it| it.ack(AckPolicy::AckFirst), jobs), drain);
    let tokens: Vec<_> = store.rows().iter().map(|row| row.acquired_token).collect();
    assert_eq!((ran, tokens), ((0, 1, 1), vec![None]));
}

/// Otherwise its rows would stay leased, and the delivery would count.
#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_the_rows_of_a_claim_that_is_answered_when_handlers_had_their_time() {
    let (store, second) = (holding(1).await, Duration::from_secs(1));
    let shared = Unanswered::new(&store, Claims::Late(8 * second)).shared();
    shared.store.asked.releases.store(ANSWERED, Ordering::SeqCst);
    let subscriber = Subscriber::new("s", "q", |_: crate::Context| async {});
    let settings = Settings { drain_timeout: second, sample_every: None };
    let (states, counts) = (States::default(), Stats::default());
    let none = None::<fn() -> Unanswered>;
    let mut engine = Engine::start(shared, vec![subscriber], &states, &counts, settings, none);
    sleep(second / 2).await;
    let drained = engine.drain().await;
    assert!(drained.is_ok(), "{drained:?}");
    let row = store.rows().remove(0);
    assert_eq!((row.acquired_token, row.deliveries_count), (None, 0));
}

/// How long the claims of twenty subscribers take to end after they went on for this time.
pub(crate) async fn claimed_for(time: Duration, shared: &Arc<Shared<Unanswered>>) -> Duration {
    let changed = Arc::default();
    let readers = (0..20).map(|n| reader(shared, &format!("q{n}"), &changed)).collect();
    let results = Sender::new(&Ways::default());
    let stop = CancellationToken::new();
    let claims = claimer::run(Arc::clone(shared), readers, changed, results, stop.clone());
    let end = async {
        sleep(time).await;
        shared.store.asked.hangs.store(true, Ordering::SeqCst);
        stop.cancel();
        Instant::now()
    };
    let ended = timeout(HOUR, async { tokio::join!(end, claims) }).await;
    ended.map_or(HOUR, |(stopped, ())| stopped.elapsed())
}

/// Each lost claim asks for the last time, and the database answers none of them.
#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_all_lost_claims_at_once() {
    let shared = Arc::new(Unanswered::new(&MemoryStore::new(true), Claims::Unanswered).shared());
    let took = claimed_for(TTL / 2, &shared).await;
    assert!(shared.store.asked.abandons.load(Ordering::SeqCst) > 20, "claims were lost");
    assert!(took <= LAST_TRY + Duration::from_millis(10), "{took:?}");
}

/// A claim under way that the drain waits for may itself wait for the connection of a claim
/// that was lost.
#[tokio::test(start_paused = true)]
async fn a_drain_goes_on_with_lost_claims_while_it_waits_for_others() {
    for n in 0..20 {
        let store = Unanswered::new(&MemoryStore::new(true), Claims::UnansweredOnOneConnection);
        let took = claimed_for(TTL / 2 + TTL / 100 * n, &Arc::new(store.shared())).await;
        assert!(took <= LAST_TRY + 5 * TTL, "{took:?}");
    }
}
