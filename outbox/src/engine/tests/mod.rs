//! Tests of what a worker does between its runs. The other modules here test the engine with stores
//! that misbehave.

mod extend;
mod gathers;
mod halves;
pub(crate) mod locked;
mod marked;
mod settled_alone;
mod stopped;
mod timers;
pub(crate) mod unanswered;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::task::yield_now;
use tokio::time::{sleep, timeout};
use unanswered::{Claims, HOUR, TTL, Unanswered, claimed, holding};

use super::*;
use crate::Outgoing;
use crate::store::memory::MemoryStore;
use crate::subscriber::debug_chain;

/// A store with a message for each of these times, in which it has to be started.
async fn expiring(limits: impl IntoIterator<Item = Duration>) -> MemoryStore {
    let store = holding(0).await;
    let mut tx = store.begin();
    for limit in limits {
        let message = Outgoing::new("q", &1).expires_in(limit);
        Publisher::default().send(&mut tx, message).await.expect("it answers");
    }
    tx.commit();
    store
}

#[tokio::test(start_paused = true)]
async fn a_worker_lets_others_have_their_turn_though_there_are_more_messages() {
    const ROWS: usize = 500;
    let store = holding(ROWS).await;
    let shared = Arc::new(Unanswered::new(&store, Claims::Answered).shared());
    let runs = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&runs);
    let handler = move |_: crate::Context| {
        count.fetch_add(1, Ordering::Relaxed);
        std::future::ready(())
    };
    let subscriber = Subscriber::new("s", "q", handler).max_workers(ROWS).lease_ttl(TTL);
    let (states, counts) = (States::default(), Stats::default());
    let reader = Reader::new(subscriber, &shared, &states, &counts, &Arc::default());
    let reserved = reader.inbox.reserve(ROWS).unwrap();
    reader.inbox.fill(reserved, claimed(&store, ROWS).await.into_iter());
    let results = Sender::new(&Ways::default());
    let reader = Arc::new(reader);
    let worker = tokio::spawn(work(shared, Arc::clone(&reader), results));
    while runs.load(Ordering::Relaxed) == 0 {
        yield_now().await;
    }
    assert_eq!((runs.load(Ordering::Relaxed), reader.inbox.running()), (TURN as usize, 0));
    while runs.load(Ordering::Relaxed) < ROWS {
        yield_now().await;
    }
    worker.abort();
}

/// Otherwise a subscriber with slow handlers would be taken for a quick one, and claim thousands of
/// rows that nobody starts.
#[tokio::test(start_paused = true)]
async fn rows_that_are_given_back_or_have_expired_tell_nothing_of_the_handler() {
    for (limit, until) in [(HOUR, TTL), (TTL / 2, HOUR)] {
        let store = expiring([limit; 20]).await;
        let shared = Arc::new(Unanswered::new(&store, Claims::Answered).shared());
        let subscriber = Subscriber::new("s", "q", |_: crate::Context| async {});
        let subscriber = subscriber.max_workers(10).lease_ttl(TTL);
        let (states, counts) = (States::default(), Stats::default());
        let reader = Reader::new(subscriber, &shared, &states, &counts, &Arc::default());
        let reader = Arc::new(reader);
        let first = reader.inbox.reserve(20).unwrap();
        let mut jobs = claimed(&store, 20).await;
        for job in &mut jobs {
            job.deadline = Instant::now() + until;
        }
        reader.inbox.fill(first, jobs.into_iter());
        let batch = reader.subscriber.options.batch;
        assert!(reader.inbox.turn(None, batch).0.is_some());
        let second = reader.inbox.turn(Some((1, Some(Duration::from_secs(1)))), batch);
        assert!(second.0.is_some());
        sleep(TTL).await;
        let results = Sender::new(&Ways::default());
        let worker = tokio::spawn(work(Arc::clone(&shared), Arc::clone(&reader), results));
        while reader.inbox.in_hand() > 1 {
            yield_now().await;
        }
        let room = reader.inbox.reserve(1000);
        assert_eq!(room, Some(10), "nine more that run, and one that waits");
        assert_eq!(counts.subscribers()[0].dispatched, 0);
        worker.abort();
    }
}

/// Otherwise the oldest row would be given back, claimed, and given back again, as long as others
/// come.
#[tokio::test(start_paused = true)]
async fn rows_that_waited_for_a_long_run_are_of_the_next_however_long_it_waits_for_more() {
    let (store, second) = (holding(0).await, Duration::from_secs(1));
    let (render, publisher) = (Arc::new(debug_chain), Publisher::default());
    let shared = Shared::new(store.clone(), render, publisher, Sinks::default());
    let ran = Arc::<Mutex<Vec<i64>>>::default();
    let runs = Arc::clone(&ran);
    let handler = move |batch: Vec<crate::Context>| {
        runs.lock().unwrap().extend(batch.iter().map(crate::Context::id));
        sleep(12 * second)
    };
    let subscriber = Subscriber::batches("s", "q", 100, handler).max_workers(1);
    let subscriber = subscriber.batch_wait(10 * second).lease_ttl(30 * second);
    let settings = Settings { drain_timeout: second, sample_every: None };
    let (states, counts) = (States::default(), Stats::default());
    let none = None::<fn() -> MemoryStore>;
    let _engine = Engine::start(shared, vec![subscriber], &states, &counts, settings, none);
    for _ in 0..100 {
        let mut tx = store.begin();
        Publisher::default().publish(&mut tx, "q", &1).await.unwrap();
        tx.commit();
        sleep(2 * second).await;
    }
    let ran = ran.lock().unwrap();
    assert_eq!(counts.subscribers()[0].waited_too_long, 0);
    assert!(ran.len() > 75 && ran.is_sorted(), "{ran:?}");
}

/// Nobody extends its lease any more.
#[tokio::test(start_paused = true)]
async fn what_expired_while_its_batch_waited_is_written_before_the_others_have_run() {
    let store = expiring([TTL, HOUR]).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    let handler = |_: Vec<crate::Context>| sleep(HOUR);
    let subscriber = Subscriber::batches("s", "q", 2, handler).lease_ttl(2 * HOUR);
    let (states, counts) = (States::default(), Stats::default());
    let reader = Arc::new(Reader::new(subscriber, &shared, &states, &counts, &Arc::default()));
    let begun = Instant::now();
    let in_time = |job| Job { deadline: begun + 2 * HOUR, ..job };
    let jobs = claimed(&store, 2).await.into_iter().map(in_time).collect();
    let results = Arc::<Results>::default();
    let sender = Sender::new(&[(); 3].map(|()| Arc::clone(&results)));
    let alone = shared.quiet.alone().await;
    let first = async {
        sleep(2 * TTL).await;
        drop(alone);
        timeout(HOUR / 2, results.next()).await.ok().flatten().map(|batch| batch.len())
    };
    let delivery = deliver(&shared, &reader, jobs, begun, Some(&sender));
    let (settled, first) = tokio::join!(delivery, first);
    assert_eq!((settled.len(), first), (1, Some(1)));
}
