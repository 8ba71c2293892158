//! Tests of what waits in an inbox, what runs, and how much is claimed.

use std::time::SystemTime;

use bytes::Bytes;

use super::*;

fn job(payload: Bytes) -> Job {
    let (now, at) = (Instant::now(), SystemTime::UNIX_EPOCH);
    let claimed = Claimed::of_test(1, at, at, payload);
    Job { claimed, claimed_at: now, deadline: now + Duration::from_secs(60) }
}

/// The places that the inbox gives to a claim, once it knows how large rows are and that they are
/// handled fast.
fn room_after(bytes: usize) -> Option<usize> {
    let inbox = Inbox::new(10, 4000, 1, Duration::from_secs(60), &Arc::default());
    let batch = Batching { size: 1, wait: Duration::ZERO };
    let first = inbox.reserve(CLAIM).unwrap();
    let payload = Bytes::from(vec![0; bytes]);
    inbox.fill(first, std::iter::repeat_n(payload, first).map(job));
    while inbox.turn(None, batch).0.is_some() {}
    for _ in 0..first {
        inbox.turn(Some((1, Some(Duration::from_micros(1)))), batch);
    }
    inbox.reserve(CLAIM)
}

#[test]
fn what_waits_or_has_ended_and_places_for_a_claim_do_not_run() {
    let inbox = Inbox::new(10, 4000, 1, Duration::from_secs(60), &Arc::default());
    let batch = Batching { size: 1, wait: Duration::ZERO };
    let first = inbox.reserve(5).unwrap();
    inbox.fill(first, std::iter::repeat_n(Bytes::new(), 3).map(job));
    assert!(inbox.turn(None, batch).0.is_some());
    assert!(inbox.reserve(2).is_some());
    assert_eq!((inbox.running(), inbox.in_hand()), (1, 5));
    let ended = inbox.ended(1);
    assert_eq!((inbox.running(), inbox.in_hand()), (0, 5));
    drop(ended);
    assert_eq!((inbox.close().len(), inbox.running()), (2, 1));
}

/// Otherwise they would be looked at only after rows that have more time.
#[tokio::test(start_paused = true)]
async fn rows_of_a_claim_that_others_overtook_are_late_first() {
    let second = Duration::from_secs(1);
    let inbox = Inbox::new(10, 4000, 1, Duration::from_secs(60), &Arc::default());
    let (first, now) = (inbox.reserve(2).unwrap(), Instant::now());
    assert_eq!(first, 2);
    let lasting = |seconds| Job { deadline: now + seconds * second, ..job(Bytes::new()) };
    inbox.fill(1, [lasting(60)].into_iter());
    inbox.fill(1, [lasting(30)].into_iter());
    let (late, next) = inbox.late(now + 15 * second);
    assert_eq!(late.iter().map(|job| job.deadline - now).collect::<Vec<_>>(), [30 * second]);
    assert_eq!(next, Some(now + 40 * second));
}

/// Otherwise rows would wait for minutes that another process could run, and fill the memory.
#[tokio::test]
async fn workers_that_run_less_than_a_batch_leave_no_room_until_they_end() {
    let inbox = Inbox::new(10 * 100, 4000, 100, Duration::from_secs(60), &Arc::default());
    let batch = Batching { size: 100, wait: Duration::ZERO };
    let large = Bytes::from(vec![0; 10 << 20]);
    for _ in 0..10 {
        let places = inbox.reserve(CLAIM).unwrap();
        inbox.fill(places, std::iter::repeat_n(large.clone(), 4).map(job));
        assert_eq!(inbox.next(batch).await.map(|jobs| jobs.len()), Some(4));
    }
    let ahead = inbox.reserve(CLAIM);
    assert_eq!(ahead, Some(BYTES / (10 << 20)));
    inbox.fill(3, std::iter::empty());
    inbox.turn(Some((4, Some(Duration::from_secs(30)))), batch);
    assert!(inbox.reserve(CLAIM) >= Some(100), "one of them is free");
}

#[tokio::test]
async fn a_batch_waits_for_the_next_worker_however_long_runs_take() {
    let inbox = Inbox::new(2 * 100, 4000, 100, Duration::from_secs(60), &Arc::default());
    let batch = Batching { size: 100, wait: Duration::ZERO };
    let run = Some((100, Some(Duration::from_secs(30))));
    for worker in 0..2 {
        let places = inbox.reserve(100).unwrap();
        inbox.fill(places, std::iter::repeat_n(Bytes::new(), 100).map(job));
        assert_eq!(inbox.next(batch).await.map(|jobs| jobs.len()), Some(100), "{worker}");
    }
    inbox.turn(run, batch);
    let places = inbox.reserve(CLAIM).unwrap();
    assert_eq!(places, 100 + 100, "of the worker that is free, and of the next one");
}

#[tokio::test(start_paused = true)]
async fn rows_that_come_one_by_one_are_of_one_run_however_many_workers_are_idle() {
    let inbox = Inbox::new(10 * 5, 4000, 5, Duration::from_secs(60), &Arc::default());
    let batch = Batching { size: 5, wait: Duration::from_millis(50) };
    let come = async {
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let places = inbox.reserve(1).unwrap();
            inbox.fill(places, std::iter::once(job(Bytes::new())));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        inbox.close()
    };
    let (all, left) =
        tokio::join!(futures_util::future::join_all((0..10).map(|_| inbox.next(batch))), come);
    let sizes: Vec<_> = all.iter().flatten().map(Few::len).collect();
    assert_eq!((sizes, left.len()), (vec![5], 0));
}

/// Later they would be given back, claimed, and wait again.
#[tokio::test(start_paused = true)]
async fn rows_that_waited_for_a_worker_wait_for_their_batch_until_half_of_their_lease_at_most() {
    let second = Duration::from_secs(1);
    let inbox = Inbox::new(5, 4000, 5, 30 * second, &Arc::default());
    let batch = Batching { size: 5, wait: 10 * second };
    for (waited, waits) in [(0, 10), (5, 10), (12, 3), (16, 0)] {
        let places = inbox.reserve(1).unwrap();
        let deadline = Instant::now() + 30 * second;
        inbox.fill(places, std::iter::once(Job { deadline, ..job(Bytes::new()) }));
        tokio::time::advance(waited * second).await;
        let begun = Instant::now();
        assert_eq!(inbox.next(batch).await.map(|jobs| jobs.len()), Some(1));
        assert_eq!(begun.elapsed(), waits * second, "{waited}");
        inbox.turn(Some((1, None)), batch);
    }
}

/// A claim that hangs may keep the inbox open for long.
#[tokio::test(start_paused = true)]
async fn rows_that_wait_for_their_batch_are_let_go_when_nothing_starts_any_more() {
    let second = Duration::from_secs(1);
    let inbox = Inbox::new(5, 4000, 5, 60 * second, &Arc::default());
    let batch = Batching { size: 5, wait: 10 * second };
    let places = inbox.reserve(2).unwrap();
    inbox.fill(places, std::iter::repeat_n(Bytes::new(), places).map(job));
    let ends = async {
        tokio::time::sleep(second).await;
        inbox.end_gathering();
    };
    let begun = Instant::now();
    let (jobs, ()) = tokio::join!(inbox.next(batch), ends);
    assert_eq!((jobs.map(|jobs| jobs.len()), begun.elapsed()), (Some(2), second));
    // Rows that come now are handed out to be given back.
    let places = inbox.reserve(1).unwrap();
    inbox.fill(places, std::iter::once(job(Bytes::new())));
    assert_eq!(inbox.next(batch).await.map(|jobs| jobs.len()), Some(1));
    assert_eq!(begun.elapsed(), second);
}

/// A drain whose time is over would report handlers that nobody has started.
#[tokio::test(start_paused = true)]
async fn rows_that_wait_for_their_batch_do_not_run() {
    let second = Duration::from_secs(1);
    let inbox = Inbox::new(5, 4000, 5, 60 * second, &Arc::default());
    let batch = Batching { size: 5, wait: 10 * second };
    let gathered = async {
        let mut running = Vec::new();
        for _ in 0..2 {
            let places = inbox.reserve(2).unwrap();
            inbox.fill(places, std::iter::repeat_n(Bytes::new(), places).map(job));
            tokio::time::sleep(second).await;
            running.push(inbox.running());
        }
        running
    };
    let (jobs, running) = tokio::join!(inbox.next(batch), gathered);
    assert_eq!((jobs.map(|jobs| jobs.len()), running, inbox.running()), (Some(4), vec![0, 0], 4));
}

#[test]
fn as_many_rows_wait_as_there_is_memory_for() {
    assert_eq!(room_after(100), Some(CLAIM));
    assert_eq!(room_after(1 << 20), Some(10 + 32));
    assert_eq!(room_after(30 << 20), Some(10 + 1));
    assert_eq!(room_after(100 << 20), Some(10));
}

/// Another process may have a worker for them.
#[tokio::test(start_paused = true)]
async fn what_no_worker_comes_to_in_time_is_let_go_and_claimed_no_more() {
    let minute = Duration::from_secs(60);
    let batch = Batching { size: 1, wait: Duration::ZERO };
    for workers in [1, FIRST] {
        let inbox = Inbox::new(workers, 4000, 1, minute, &Arc::default());
        let places = inbox.reserve(CLAIM).unwrap();
        assert_eq!(places, workers + FIRST);
        let claimed = Instant::now();
        let in_time = |job| Job { deadline: claimed + minute, ..job };
        inbox.fill(places, std::iter::repeat_n(Bytes::new(), places).map(|it| in_time(job(it))));
        for _ in 0..workers {
            assert!(inbox.turn(None, batch).0.is_some());
        }
        let (late, until) = inbox.late(claimed);
        assert_eq!((late.len(), until), (0, Some(claimed + minute * 2 / 3)));
        tokio::time::advance(minute * 2 / 3).await;
        let (late, until) = inbox.late(Instant::now());
        assert_eq!((late.len(), until, inbox.in_hand()), (FIRST, None, workers));
        assert_eq!(inbox.reserve(CLAIM), None, "the next one would wait as long");
        inbox.turn(Some((1, Some(minute))), batch);
        assert!(inbox.reserve(CLAIM).is_some(), "for the worker that is free");
    }
}
