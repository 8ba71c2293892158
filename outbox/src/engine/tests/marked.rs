//! Tests with rows that are to run alone, and whose marks get no answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::expiring;
use super::locked::{ANSWERED, claimed_for_long};
use super::unanswered::{Claims, HOUR, TTL, Unanswered, claimed, holding, reader, taken};
use crate::engine::inbox::Job;
use crate::engine::later::settle;
use crate::engine::settlement::Settlement;
use crate::engine::settling::Settling;
use crate::engine::{Reader, deliver};
use crate::extract::States;
use crate::store::memory::MemoryStore;
use crate::store::{Extend, Store, new_alone_token};
use crate::subscriber::{AckPolicy, Subscriber};
use crate::telemetry::Stats;

/// The process that claimed it first has died.
pub(crate) async fn claimed_suspect(store: &MemoryStore) -> Job {
    claimed(store, 1).await;
    sleep(2 * TTL).await;
    claimed(store, 1).await.remove(0)
}

/// Otherwise it would be found under the token of a row that died while it ran alone, and be
/// condemned.
#[tokio::test(start_paused = true)]
async fn a_suspect_that_could_not_be_marked_in_time_is_given_back_for_as_long_as_a_lease() {
    let store = holding(1).await;
    let job = claimed_suspect(&store).await;
    let claimed_at = job.claimed_at;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    let reader = reader(&shared, "q", &Arc::default());
    let claimed = job.claimed.row.acquired_token;
    let run = deliver(&shared, &reader, smallvec::smallvec![job], claimed_at, None);
    let sees = async {
        while shared.store.asked.releases.load(Ordering::SeqCst) == 0 {
            sleep(TTL / 100).await;
        }
        let token = store.rows()[0].acquired_token;
        assert!(token.is_some() && token != claimed, "it is marked");
    };
    let (settled, ()) = tokio::join!(run, sees);
    settle(&shared.store, settled.into_iter().map(|one| *one).collect()).await;
    assert_eq!(store.rows()[0].acquired_token, None);
}

/// Its connection is dead, and others live. Otherwise the row would be condemned, and nothing else
/// would start meanwhile.
#[tokio::test(start_paused = true)]
async fn a_mark_that_is_never_answered_is_asked_for_on_another_connection() {
    for (silent, lasts) in [(1, TTL), (1, HOUR), (usize::MAX, TTL)] {
        let store = holding(1).await;
        let mut job = claimed_suspect(&store).await;
        let claimed_at = job.claimed_at;
        job.deadline = claimed_at + lasts;
        let shared = Unanswered::new(&store, Claims::Answered).shared();
        shared.store.asked.locked.store(-1, Ordering::SeqCst);
        shared.store.asked.silent.store(silent, Ordering::SeqCst);
        shared.store.asked.releases.store(ANSWERED, Ordering::SeqCst);
        let (reader, begun) = (reader(&shared, "q", &Arc::default()), Instant::now());
        let run = async {
            let jobs = smallvec::smallvec![job];
            let settled = deliver(&shared, &reader, jobs, claimed_at, None).await;
            settle(&shared.store, settled.into_iter().map(|one| *one).collect()).await;
        };
        let others = async {
            sleep(TTL / 100).await;
            drop(shared.quiet.beside_others(1).await);
            begun.elapsed()
        };
        let ((), others) = tokio::join!(run, others);
        assert!(others <= TTL, "{others:?}");
        assert!(begun.elapsed() <= TTL, "{:?}", begun.elapsed());
        let left: Vec<_> = store.rows().iter().map(|row| row.deliveries_count).collect();
        assert_eq!(left, if silent == 1 { vec![] } else { vec![0] }, "it ran, or is given back");
    }
}

/// Each connection on which its first token is asked for breaks, until its lease is over.
#[tokio::test(start_paused = true)]
async fn a_suspect_whose_mark_has_arrived_unnoticed_is_given_back_under_the_mark() {
    let store = holding(1).await;
    let job = claimed_suspect(&store).await;
    let claimed_at = job.claimed_at;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    shared.store.asked.in_vain.store(true, Ordering::SeqCst);
    let reader = reader(&shared, "q", &Arc::default());
    let begun = Instant::now();
    let settled = deliver(&shared, &reader, smallvec::smallvec![job], claimed_at, None).await;
    assert!(begun.elapsed() < 2 * TTL, "{:?}", begun.elapsed());
    let row = store.rows().remove(0);
    assert_eq!((row.acquired_token, row.deliveries_count), (None, 0), "as if not begun");
    settle(&shared.store, settled.into_iter().map(|one| *one).collect()).await;
}

/// As when a route holds up what was sent for longer than its sender waits. Nothing of the row has
/// run, and it would be condemned.
#[tokio::test(start_paused = true)]
async fn a_mark_that_arrives_when_its_row_was_given_back_is_in_vain() {
    for stopped in [false, true] {
        let store = holding(1).await;
        let mut job = claimed_suspect(&store).await;
        let claimed_at = job.claimed_at;
        let shared = Unanswered::new(&store, Claims::Answered).shared();
        shared.store.asked.on_its_way.store(true, Ordering::SeqCst);
        let reader = reader(&shared, "q", &Arc::default());
        let lease = Settling::of(&reader, &job).lease;
        if stopped {
            job.deadline = Instant::now() + HOUR;
            shared.store.asked.releases.store(ANSWERED, Ordering::SeqCst);
        }
        let other = async {
            if stopped {
                sleep(TTL / 4).await;
                shared.stop.cancel();
                shared.cut_off.cancel();
            } else {
                while shared.store.asked.releases.load(Ordering::SeqCst) == 0 {
                    sleep(TTL / 100).await;
                }
                assert_eq!(reader.inbox.running(), 0, "nothing runs");
            }
        };
        let jobs = taken(&reader, vec![job]).await;
        let delivery = deliver(&shared, &reader, jobs, claimed_at, None);
        let (settled, ()) = tokio::join!(delivery, other);
        settle(&shared.store, settled.into_iter().map(|one| *one).collect()).await;
        let mark = Extend { lease, token: new_alone_token() };
        assert_eq!(store.extend(&[mark]).await.unwrap(), [false]);
        let row = store.rows().remove(0);
        assert_eq!((row.acquired_token, row.deliveries_count), (None, 0), "as if not begun");
    }
}

/// One try has no answer, and the others say that the row is locked.
#[tokio::test(start_paused = true)]
async fn a_suspect_that_is_let_go_while_a_mark_has_no_answer_runs_alone() {
    let store = holding(1).await;
    let mut job = claimed_suspect(&store).await;
    job.deadline = Instant::now() + HOUR;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    shared.store.asked.locked.store(job.claimed.row.id, Ordering::SeqCst);
    shared.store.asked.silent.store(1, Ordering::SeqCst);
    let handler = |_: crate::Context| async {};
    let subscriber = Subscriber::new("s", "q", handler).max_deliveries(1).lease_ttl(HOUR);
    let (states, counts) = (States::default(), Stats::default());
    let reader = Arc::new(Reader::new(subscriber, &shared, &states, &counts, &Arc::default()));
    let run = deliver(&shared, &reader, smallvec::smallvec![job], Instant::now(), None);
    let lets_go = async {
        sleep(TTL * 13 / 20).await;
        shared.store.asked.locked.store(-1, Ordering::SeqCst);
    };
    let (settled, ()) = tokio::join!(run, lets_go);
    settle(&shared.store, settled.into_iter().map(|one| *one).collect()).await;
    assert_eq!(store.rows().len(), 0, "it ran");
}

/// Like any other row, it waits two seconds for the lock, however slow the database answers.
#[tokio::test(start_paused = true)]
async fn a_suspect_that_is_locked_from_the_first_try_on_runs_beside_others() {
    for slow in [0, 30, 150, 700] {
        let store = holding(1).await;
        let mut job = claimed_suspect(&store).await;
        job.deadline = Instant::now() + HOUR;
        let shared = Unanswered::new(&store, Claims::Answered).shared();
        shared.store.asked.locked.store(job.claimed.row.id, Ordering::SeqCst);
        shared.store.asked.slow.store(slow, Ordering::SeqCst);
        let (reader, begun) = (reader(&shared, "q", &Arc::default()), Instant::now());
        let settled = deliver(&shared, &reader, smallvec::smallvec![job], begun, None).await;
        assert!(begun.elapsed() < 2 * TTL, "{:?}", begun.elapsed());
        shared.store.asked.locked.store(-1, Ordering::SeqCst);
        settle(&shared.store, settled.into_iter().map(|one| *one).collect()).await;
        assert_eq!(store.rows().len(), 0, "it ran");
    }
}

/// Only its worker waits to learn how it is marked: the first try may have landed.
#[tokio::test(start_paused = true)]
async fn a_suspect_that_is_locked_after_a_try_without_an_answer_holds_up_no_other_and_no_stop() {
    let store = holding(2).await;
    // The process that claimed it first has died.
    let died = claimed(&store, 1).await.remove(0).claimed.row.id;
    sleep(2 * TTL).await;
    let mut jobs = claimed_for_long(&store, 2).await;
    jobs.sort_by_key(|job| job.claimed.row.id != died);
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    let (reader, begun) = (reader(&shared, "q", &Arc::default()), Instant::now());
    let run = |job| deliver(&shared, &reader, smallvec::smallvec![job], begun, None);
    let (suspect, other) = (run(jobs.remove(0)), run(jobs.remove(0)));
    let others = async {
        sleep(TTL / 40).await;
        shared.store.asked.locked.store(died, Ordering::SeqCst);
        other.await;
        assert!(begun.elapsed() < 2 * TTL, "{:?}", begun.elapsed());
        shared.stop.cancel();
        sleep(TTL).await;
        shared.cut_off.cancel();
        Instant::now()
    };
    let (settled, cut_off) = tokio::join!(suspect, others);
    assert!(cut_off.elapsed() < TTL, "the drain is over");
    shared.store.asked.locked.store(-1, Ordering::SeqCst);
    settle(&shared.store, settled.into_iter().map(|one| *one).collect()).await;
    let row = store.rows().into_iter().find(|row| row.id == died).unwrap();
    assert_eq!((row.acquired_token, row.deliveries_count), (None, 0), "as if it had not begun");
}

/// When the drain's time is over, it reports how many handlers run.
#[tokio::test(start_paused = true)]
async fn of_a_batch_with_a_suspect_what_has_ended_or_not_begun_does_not_run() {
    let store = holding(3).await;
    // The process that claimed it first has died.
    claimed(&store, 1).await;
    sleep(2 * TTL).await;
    let jobs = claimed_for_long(&store, 3).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    // Its mark is answered, after a while.
    shared.store.asked.locked.store(-1, Ordering::SeqCst);
    shared.store.asked.slow.store(500, Ordering::SeqCst);
    let handler = |_: Vec<crate::Context>| sleep(TTL);
    let subscriber = Subscriber::batches("s", "q", 3, handler).max_deliveries(1).lease_ttl(HOUR);
    let (states, counts) = (States::default(), Stats::default());
    let reader = Arc::new(Reader::new(subscriber, &shared, &states, &counts, &Arc::default()));
    let jobs = taken(&reader, jobs).await;
    let running = async {
        let mut running = Vec::new();
        // While the others run, while it is marked, and while it runs.
        for wait in [TTL / 2, TTL / 2 + TTL / 8, TTL / 2] {
            sleep(wait).await;
            running.push(reader.inbox.running());
        }
        running
    };
    let delivery = deliver(&shared, &reader, jobs, Instant::now(), None);
    let (settled, running) = tokio::join!(delivery, running);
    assert_eq!((settled.len(), running), (3, vec![2, 0, 1]));
}

/// Nor do rows run that were sorted out of a batch that had to wait.
#[tokio::test(start_paused = true)]
async fn of_a_batch_that_waited_what_was_given_back_does_not_run() {
    let store = holding(3).await;
    let mut jobs = claimed_for_long(&store, 3).await;
    jobs[0].deadline = Instant::now() + TTL;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    let handler = |_: Vec<crate::Context>| sleep(TTL);
    let subscriber = Subscriber::batches("s", "q", 3, handler).lease_ttl(TTL);
    let (states, counts) = (States::default(), Stats::default());
    let reader = Arc::new(Reader::new(subscriber, &shared, &states, &counts, &Arc::default()));
    let jobs = taken(&reader, jobs).await;
    // Somebody runs alone for a while.
    let alone = shared.quiet.alone().await.unwrap();
    let running = async {
        sleep(2 * TTL).await;
        let before = reader.inbox.running();
        drop(alone);
        sleep(TTL / 2).await;
        (before, reader.inbox.running())
    };
    let delivery = deliver(&shared, &reader, jobs, Instant::now(), None);
    let (settled, running) = tokio::join!(delivery, running);
    assert_eq!((settled.len(), running), (3, (0, 2)));
}

/// Nor does what is still being acked, or was not.
#[tokio::test(start_paused = true)]
async fn of_a_batch_that_is_acked_first_what_is_not_acked_does_not_run() {
    let store = holding(3).await;
    let mut jobs = claimed_for_long(&store, 3).await;
    jobs[0].deadline = Instant::now() + TTL;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    shared.store.asked.locked.store(jobs[0].claimed.row.id, Ordering::SeqCst);
    let handler = |_: Vec<crate::Context>| sleep(TTL);
    let subscriber = Subscriber::batches("s", "q", 3, handler).lease_ttl(TTL);
    let subscriber = subscriber.ack(AckPolicy::AckFirst);
    let (states, counts) = (States::default(), Stats::default());
    let reader = Arc::new(Reader::new(subscriber, &shared, &states, &counts, &Arc::default()));
    let jobs = taken(&reader, jobs).await;
    let running = async {
        let mut running = Vec::new();
        for _ in 0..2 {
            sleep(TTL * 3 / 4).await;
            running.push(reader.inbox.running());
        }
        running
    };
    let delivery = deliver(&shared, &reader, jobs, Instant::now(), None);
    let (settled, running) = tokio::join!(delivery, running);
    assert_eq!((settled.len(), running), (1, vec![0, 2]));
    assert!(matches!(settled[0].settlement, Settlement::Lost), "its ack has told of it");
    assert!(settled[0].report.started.is_none(), "it is told of once");
}

/// Somebody has its row locked while it is marked.
#[tokio::test(start_paused = true)]
async fn a_suspect_that_expires_while_it_is_marked_is_not_started() {
    let second = Duration::from_secs(1);
    for (limit, runs) in [(HOUR, 1), (2 * TTL + second / 2, 0)] {
        let store = expiring([limit]).await;
        let mut job = claimed_suspect(&store).await;
        let claimed_at = job.claimed_at;
        job.deadline = claimed_at + HOUR;
        let shared = Unanswered::new(&store, Claims::Answered).shared();
        shared.store.asked.locked.store(job.claimed.row.id, Ordering::SeqCst);
        let (states, counts) = (States::default(), Stats::default());
        let subscriber = Subscriber::new("s", "q", |_: crate::Context| async {});
        let subscriber = subscriber.max_deliveries(1).lease_ttl(HOUR);
        let reader = Reader::new(subscriber, &shared, &states, &counts, &Arc::default());
        let unlocks = async {
            sleep(second).await;
            shared.store.asked.locked.store(-1, Ordering::SeqCst);
        };
        let reader = Arc::new(reader);
        let run = deliver(&shared, &reader, smallvec::smallvec![job], claimed_at, None);
        let (settled, ()) = tokio::join!(run, unlocks);
        assert_eq!(counts.subscribers()[0].dispatched, runs);
        let back: Vec<_> = settled.iter().map(|one| one.report.started.is_none()).collect();
        assert_eq!(back, [runs == 0]);
    }
}
