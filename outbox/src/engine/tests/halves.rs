//! Tests with statements that are too large for the database.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::locked::claimed_for_long;
use super::unanswered::{
    Claims, HOUR, LARGE, TTL, Unanswered, acked, acks, claimed, holding, publishing, reader,
};
use crate::engine::later::{Later, settle};
use crate::engine::results::{Results, Sender};
use crate::engine::settle::run;

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_too_large_to_be_answered_is_written_in_parts() {
    let store = holding(9).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    let jobs = claimed(&store, 9).await;
    let batch = publishing(&jobs, &reader(&shared, "q", &Arc::default()), &[1 << 20; 9]);
    assert_eq!(settle(&shared.store, batch).await, 9);
    let rows = store.rows();
    assert_eq!((rows.len(), rows.iter().filter(|row| row.queue == "copies").count()), (9, 9));
}

/// As where a table is locked: each of the others would take a statement, too.
#[tokio::test(start_paused = true)]
async fn a_look_at_what_is_locked_ends_with_the_first_row_for_which_the_server_has_no_time() {
    let shared = Unanswered::new(&holding(0).await, Claims::Answered).shared();
    shared.store.asked.most.store(0, Ordering::SeqCst);
    let mut later = Later::new(CancellationToken::new());
    later.add(acks(&[0; 1000]));
    let begun = Instant::now();
    later.again(&shared.store).await;
    assert_eq!(later.waiting().len(), 1000);
    assert!(begun.elapsed() < TTL / 4, "{:?}", begun.elapsed());
}

/// Otherwise it would be given up without another try.
#[tokio::test(start_paused = true)]
async fn a_row_that_has_little_time_is_looked_at_while_it_lasts_though_others_have_waited_long() {
    let shared = Unanswered::new(&holding(0).await, Claims::Answered).shared();
    shared.store.asked.most.store(0, Ordering::SeqCst);
    let mut later = Later::new(CancellationToken::new());
    let waiting = |time| {
        let mut one = acks(&[0]).remove(0);
        one.deadline = Instant::now() + time;
        vec![one]
    };
    later.add(waiting(HOUR));
    for _ in 0..8 {
        later.is_due().await;
        later.again(&shared.store).await;
    }
    let begun = Instant::now();
    later.add(waiting(TTL / 4));
    later.is_due().await;
    assert!(begun.elapsed() < TTL / 4, "{:?}", begun.elapsed());
}

/// Otherwise nobody would see that they are not locked any more.
#[tokio::test(start_paused = true)]
async fn rows_that_are_locked_and_for_which_the_server_has_no_time_at_once_are_looked_at_in_parts()
{
    let store = holding(30).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    let jobs = claimed_for_long(&store, 30).await;
    let last = jobs.iter().map(|job| job.claimed.row.id).max();
    shared.store.asked.locked.store(-1, Ordering::SeqCst);
    shared.store.asked.locked_to.store(last.unwrap_or_default(), Ordering::SeqCst);
    shared.store.asked.most.store(10, Ordering::SeqCst);
    let batch = acked(&jobs, &reader(&shared, "q", &Arc::default()));
    let (landed, ()) = tokio::join!(settle(&shared.store, batch), async {
        sleep(20 * TTL).await;
        shared.store.asked.locked_to.store(0, Ordering::SeqCst);
    });
    assert_eq!(landed, 30);
}

/// Not even the look at what is locked has an answer then.
#[tokio::test(start_paused = true)]
async fn a_batch_for_which_the_server_has_no_time_is_written_in_parts() {
    let store = holding(100).await;
    let shared = Unanswered::new(&store, Claims::Answered).shared();
    shared.store.asked.most.store(10, Ordering::SeqCst);
    let jobs = claimed_for_long(&store, 100).await;
    let batch = acked(&jobs, &reader(&shared, "q", &Arc::default()));
    assert_eq!((settle(&shared.store, batch).await, store.rows().len()), (100, 0));
}

/// There is one such result for each settler.
#[tokio::test(start_paused = true)]
async fn results_that_are_too_large_by_themselves_keep_no_other_from_being_written() {
    let store = holding(3).await;
    let shared = Arc::new(Unanswered::new(&store, Claims::Answered).shared());
    // Extensions have an answer.
    shared.store.asked.locked.store(-1, Ordering::SeqCst);
    let jobs = claimed_for_long(&store, 3).await;
    let reader = reader(&shared, "q", &Arc::default());
    let results = Arc::<Results>::default();
    let sender = Sender::to(&results);
    let settlers =
        [(); 2].map(|()| tokio::spawn(run(Arc::clone(&shared), Arc::clone(&results), None)));
    for large in publishing(&jobs[..2], &reader, &[LARGE + 1; 2]) {
        sender.send(Box::new(large)).await;
        sleep(TTL).await;
    }
    let tried = shared.store.asked.publishing.load(Ordering::SeqCst);
    sender.send(Box::new(acked(&jobs[2..], &reader).remove(0))).await;
    sleep(TTL).await;
    assert_eq!(store.rows().len(), 2, "it is acked");
    sleep(60 * TTL).await;
    // For two minutes, each about once a second.
    let tried = shared.store.asked.publishing.load(Ordering::SeqCst) - tried;
    assert!((60..360).contains(&tried), "{tried} times, ever more seldom");
    shared.over.cancel();
    drop(sender);
    for settler in settlers {
        settler.await.unwrap();
    }
}

/// They hold what their handlers returned, and workers go on as long as there is room.
#[tokio::test(start_paused = true)]
async fn results_that_wait_for_a_lock_are_as_many_as_there_is_memory_for() {
    let mut later = Later::new(tokio_util::sync::CancellationToken::new());
    for full in [false, true] {
        later.add(acks(&[20 << 20]));
        assert_eq!(later.is_full(), full);
    }
}
