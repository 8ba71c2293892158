//! Tests with rows that somebody else has locked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::unanswered::{
    Claims, HOUR, LARGE, TTL, Unanswered, acked, claimed, holding, publishing, reader,
};
use crate::engine::inbox::Job;
use crate::engine::invoke::case;
use crate::engine::later::settle;
use crate::engine::lease::margin;
use crate::engine::results::{Results, Sender};
use crate::engine::settle::run;
use crate::engine::settling::Settling;
use crate::engine::{Reader, Shared, deliver};
use crate::extract::States;
use crate::store::memory::MemoryStore;
use crate::store::{Extend, Store, new_alone_token};
use crate::subscriber::Subscriber;
use crate::telemetry::Stats;

/// The results of these jobs are tried for longer than the leases of the store last.
pub(crate) async fn claimed_for_long(store: &MemoryStore, limit: usize) -> Vec<Job> {
    let mut jobs = claimed(store, limit).await;
    for job in &mut jobs {
        job.deadline = Instant::now() + HOUR;
    }
    jobs
}

/// A reader, and what is counted of its deliveries.
pub(crate) fn counted<S>(shared: &Shared<S>) -> (Arc<Reader>, Stats) {
    let (states, counts) = (States::default(), Stats::default());
    let subscriber = Subscriber::new("s", "q", |_: crate::Context| async {});
    let reader = Reader::new(subscriber, shared, &states, &counts, &Arc::default());
    (Arc::new(reader), counts)
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_locked_keeps_no_other_of_its_batch_from_being_settled() {
    let store = holding(100).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    let jobs = claimed(&store, 100).await;
    shared.store.asked.locked.store(jobs[40].claimed.row.id, Ordering::SeqCst);
    let batch = acked(&jobs, &reader(&shared, "q", &Arc::default()));
    let (landed, left) = tokio::join!(settle(&shared.store, batch), async {
        sleep(TTL / 2).await;
        store.rows().len()
    });
    assert_eq!((landed, left), (99, 1), "of the one the lease is over");
}

#[tokio::test(start_paused = true)]
async fn a_settler_goes_on_beside_rows_that_are_locked_and_settles_them_when_they_are_free() {
    let store = holding(2).await;
    let shared = Arc::new(Unanswered::new(&store, Claims::Answered).shared());
    let jobs = claimed_for_long(&store, 2).await;
    let locked = jobs[0].claimed.row.id;
    shared.store.asked.locked.store(locked, Ordering::SeqCst);
    let mut acks = acked(&jobs, &reader(&shared, "q", &Arc::default())).into_iter();
    let results = Arc::<Results>::default();
    let sender = Sender::to(&results);
    let settler = tokio::spawn(run(Arc::clone(&shared), results, None));
    sender.send(Box::new(acks.next().unwrap())).await;
    sleep(TTL).await;
    sender.send(Box::new(acks.next().unwrap())).await;
    sleep(TTL).await;
    assert_eq!(store.rows().iter().map(|row| row.id).collect::<Vec<_>>(), [locked]);
    shared.store.asked.locked.store(-1, Ordering::SeqCst);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(store.rows().len(), 0);
    drop(sender);
    settler.await.unwrap();
}

/// As when somebody has deleted all rows of a queue and does not commit.
#[tokio::test(start_paused = true)]
async fn thousands_of_rows_that_are_locked_keep_none_of_another_queue_from_being_settled() {
    const ROWS: usize = 2_500;
    let store = holding(ROWS).await;
    let shared = Arc::new(Unanswered::new(&store, Claims::Answered).shared());
    let mut jobs = claimed_for_long(&store, ROWS).await;
    jobs.sort_by_key(|job| job.claimed.row.id);
    let last = jobs[ROWS - 2].claimed.row.id;
    shared.store.asked.locked.store(-1, Ordering::SeqCst);
    shared.store.asked.locked_to.store(last, Ordering::SeqCst);
    let results = Arc::<Results>::default();
    let sender = Sender::to(&results);
    let settler = || tokio::spawn(run(Arc::clone(&shared), Arc::clone(&results), None));
    let settlers = [settler(), settler()];
    for ack in acked(&jobs, &reader(&shared, "q", &Arc::default())) {
        sender.send(Box::new(ack)).await;
    }
    sleep(2 * TTL).await;
    assert_eq!(store.rows().len(), ROWS - 1, "the one that is free");
    shared.store.asked.locked_to.store(0, Ordering::SeqCst);
    sleep(HOUR / 2).await;
    assert_eq!(store.rows().len(), 0);
    drop(sender);
    for settler in settlers {
        settler.await.unwrap();
    }
}

/// Otherwise its loss would be reported only when its lease is over.
#[tokio::test(start_paused = true)]
async fn a_row_that_is_gone_is_not_taken_for_one_that_is_locked() {
    let store = holding(2).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    let jobs = claimed_for_long(&store, 2).await;
    let (reader, counts) = counted(&shared);
    settle(&shared.store, acked(&jobs[..1], &reader)).await;
    shared.store.asked.locked.store(jobs[1].claimed.row.id, Ordering::SeqCst);
    let lost = async {
        sleep(TTL).await;
        shared.store.asked.locked.store(-1, Ordering::SeqCst);
        counts.subscribers()[0].lease_lost
    };
    let (landed, lost) = tokio::join!(settle(&shared.store, acked(&jobs, &reader)), lost);
    assert_eq!((landed, lost, store.rows().len()), (1, 1, 0));
}

/// Its process may start again, and goes on counting who is at work.
#[tokio::test(start_paused = true)]
async fn what_a_stop_could_not_write_is_told_of_all_the_same() {
    let store = holding(3).await;
    let shared = Arc::new(Unanswered::new(&store, Claims::Answered).shared());
    let jobs = claimed_for_long(&store, 3).await;
    shared.store.asked.locked.store(jobs[0].claimed.row.id, Ordering::SeqCst);
    let (reader, counts) = counted(&shared);
    let results = Arc::<Results>::default();
    let sender = Sender::to(&results);
    let settler = tokio::spawn(run(Arc::clone(&shared), results, None));
    for ack in acked(&jobs, &reader) {
        sender.send(Box::new(ack)).await;
    }
    sleep(TTL).await;
    shared.over.cancel();
    drop(sender);
    timeout(TTL, settler).await.expect("it ends").unwrap();
    let told = &counts.subscribers()[0];
    assert_eq!((told.acked, told.lease_lost, store.rows().len()), (2, 1, 1));
}

/// It was never dispatched, so no event would precede that of its loss.
#[tokio::test(start_paused = true)]
async fn a_row_that_expired_unstarted_and_is_another_claims_by_then_is_not_told_of() {
    let store = holding(1).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    let (reader, counts) = counted(&shared);
    let old = claimed(&store, 1).await.remove(0);
    sleep(2 * TTL).await;
    claimed(&store, 1).await;
    let row = &old.claimed.row;
    let expired = case(&shared, &reader, row, old.claimed_at).expired();
    let dead = Settling::of(&reader, &old).ruled(expired);
    assert_eq!(settle(&shared.store, vec![*dead]).await, 0);
    assert_eq!((counts.subscribers()[0].lease_lost, store.rows().len()), (0, 1));
}

/// Otherwise it would run, and bring down one process after the other, for as long as nobody mends
/// the table.
#[tokio::test(start_paused = true)]
async fn a_row_that_brought_its_process_down_alone_does_not_run_because_its_letter_is_refused() {
    let store = holding(1).await;
    store.break_dead_letters(true);
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    let runs = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&runs);
    let handler = move |_: crate::Context| {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::ready(())
    };
    let subscriber = Subscriber::new("s", "q", handler).max_deliveries(1).lease_ttl(TTL);
    let (states, counts) = (States::default(), Stats::default());
    let reader = Arc::new(Reader::new(subscriber, &shared, &states, &counts, &Arc::default()));
    let died = claimed(&store, 1).await.remove(0);
    let lease = Settling::of(&reader, &died).lease;
    store.extend(&[Extend { lease, token: new_alone_token() }]).await.unwrap();
    for look in 0..4 {
        sleep(2 * TTL).await;
        store.break_dead_letters(look < 3);
        let job = claimed(&store, 1).await.remove(0);
        let now = job.claimed_at;
        let settled = deliver(&shared, &reader, smallvec::smallvec![job], now, None).await;
        let landed = settle(&shared.store, settled.into_iter().map(|one| *one).collect()).await;
        assert_eq!((runs.load(Ordering::SeqCst), landed), (0, usize::from(look == 3)));
    }
    assert_eq!((store.rows().len(), store.dead_letters().len()), (0, 1));
}

/// After this many releases, further ones are answered.
pub(crate) const ANSWERED: usize = 2;

/// A delivery that brought its process down while it ran alone, claimed again.
async fn claimed_guilty(store: &MemoryStore, reader: &Arc<Reader>) -> Job {
    let died = claimed(store, 1).await.remove(0);
    let lease = Settling::of(reader, &died).lease;
    store.extend(&[Extend { lease, token: new_alone_token() }]).await.expect("it answers");
    sleep(2 * TTL).await;
    claimed(store, 1).await.remove(0)
}

/// The version of the only row's token, which says whether it runs alone.
fn version(store: &MemoryStore) -> Option<usize> {
    store.rows()[0].acquired_token.map(|token| token.get_version_num())
}

#[tokio::test(start_paused = true)]
async fn a_guilty_row_that_waited_for_too_long_is_condemned_all_the_same() {
    let store = holding(1).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    let reader = reader(&shared, "q", &Arc::default());
    let job = claimed_guilty(&store, &reader).await;
    let late = job.deadline - TTL / 10;
    let settled = deliver(&shared, &reader, smallvec::smallvec![job], late, None).await;
    let batch = settled.into_iter().map(|one| *one).collect();
    assert_eq!((settle(&shared.store, batch).await, store.dead_letters().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_locked_while_its_letter_is_refused_stays_condemned() {
    let store = holding(1).await;
    store.break_dead_letters(true);
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    let reader = reader(&shared, "q", &Arc::default());
    let job = claimed_guilty(&store, &reader).await;
    let (locked, now) = (job.claimed.row.id, job.claimed_at);
    let settled = deliver(&shared, &reader, smallvec::smallvec![job], now, None).await;
    shared.store.asked.locked.store(locked, Ordering::SeqCst);
    let batch = settled.into_iter().map(|one| *one).collect();
    tokio::join!(settle(&shared.store, batch), async {
        sleep(TTL / 4).await;
        assert_eq!(version(&store), Some(4));
        shared.store.asked.locked.store(-1, Ordering::SeqCst);
    });
    assert_eq!((version(&store), store.rows()[0].deliveries_count), (Some(8), 2));
}

/// The row comes back with nothing spent, instead of when its lease is over.
#[tokio::test(start_paused = true)]
async fn a_letter_that_waits_for_its_row_for_too_long_is_given_up_for_the_row() {
    let store = holding(1).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    shared.store.asked.releases.store(ANSWERED, Ordering::SeqCst);
    let reader = reader(&shared, "q", &Arc::default());
    let job = claimed_for_long(&store, 1).await.remove(0);
    shared.store.asked.locked.store(job.claimed.row.id, Ordering::SeqCst);
    let expired = case(&shared, &reader, &job.claimed.row, job.claimed_at).expired();
    let letter = *Settling::of(&reader, &job).ruled(expired);
    let rest = margin(reader.subscriber.options.lease_ttl);
    let unlocks = async {
        sleep(HOUR.saturating_sub(rest / 2)).await;
        shared.store.asked.locked.store(-1, Ordering::SeqCst);
    };
    assert_eq!(tokio::join!(settle(&shared.store, vec![letter]), unlocks).0, 0);
    let row = store.rows().remove(0);
    assert_eq!((row.acquired_token, row.deliveries_count), (None, 0));
}

/// The last of them is refused when the lease of the first one is long over.
#[tokio::test(start_paused = true)]
async fn letters_that_are_refused_one_after_the_other_are_given_back_in_time() {
    // Whichever of them is refused first.
    for first in 0..3 {
        let store = holding(20).await;
        store.break_dead_letters(true);
        let shared = Unanswered::new(&store, Claims::Answered).shared();
        shared.store.asked.releases.store(ANSWERED, Ordering::SeqCst);
        shared.store.asked.slow.store(100, Ordering::SeqCst);
        let reader = reader(&shared, "q", &Arc::default());
        let mut jobs = claimed_for_long(&store, 20).await;
        // Leases of about the same length; one is shorter than the others.
        for job in &mut jobs {
            job.deadline = Instant::now() + 2 * TTL;
        }
        jobs[first].deadline = Instant::now() + TTL;
        let dead = |job: &Job| {
            let expired = case(&shared, &reader, &job.claimed.row, job.claimed_at).expired();
            *Settling::of(&reader, job).ruled(expired)
        };
        assert_eq!(settle(&shared.store, jobs.iter().map(dead).collect()).await, 0);
        for row in store.rows() {
            assert_eq!((row.acquired_token, row.deliveries_count), (None, 0), "{}", row.id);
        }
    }
}

/// Otherwise one row would be condemned with the other, or run again with it.
#[tokio::test(start_paused = true)]
async fn letters_that_are_refused_together_are_given_back_each_in_its_way() {
    for first in [0, 1] {
        let store = holding(2).await;
        store.break_dead_letters(true);
        let shared = Unanswered::new(&store, Claims::Answered).shared();
        shared.store.asked.releases.store(ANSWERED, Ordering::SeqCst);
        let handler = |_: crate::Context| async { Err::<(), _>("no") };
        let subscriber = Subscriber::new("s", "q", handler).max_deliveries(1).lease_ttl(TTL);
        let subscriber = subscriber.retry(crate::retry::NoRetry);
        let (states, counts) = (States::default(), Stats::default());
        let reader = Arc::new(Reader::new(subscriber, &shared, &states, &counts, &Arc::default()));
        let died = claimed(&store, 1).await.remove(0);
        let (id, token) = (died.claimed.row.id, new_alone_token());
        let lease = Settling::of(&reader, &died).lease;
        store.extend(&[Extend { lease, token }]).await.unwrap();
        sleep(2 * TTL).await;
        let mut batch = Vec::new();
        for job in claimed(&store, 2).await {
            let now = job.claimed_at;
            let settled = deliver(&shared, &reader, smallvec::smallvec![job], now, None).await;
            batch.extend(settled.into_iter().map(|one| *one));
        }
        batch.sort_by_key(|one| (one.lease.id == id) == (first == 0));
        assert_eq!(settle(&shared.store, batch).await, 0);
        for row in store.rows() {
            let condemned = row.id == id;
            assert_eq!(
                (row.acquired_token.is_some(), row.deliveries_count),
                (condemned, if condemned { 2 } else { 0 })
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_ack_that_publishes_and_waits_keeps_no_other_waiting() {
    let store = holding(10).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    let (jobs, reader) = (claimed(&store, 10).await, reader(&shared, "q", &Arc::default()));
    let mut batch = publishing(&jobs[..1], &reader, &[LARGE + 1]);
    batch.extend(acked(&jobs[1..], &reader));
    let (landed, left) = tokio::join!(settle(&shared.store, batch), async {
        sleep(TTL / 10).await;
        store.rows().len()
    });
    assert_eq!((landed, left), (9, 1));
}
