//! Tests of what waits, what is written in one batch, and when everything is written.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake};

use futures_util::poll;
use tokio::time::{Instant, timeout};

use super::*;
use crate::engine::settlement::Settlement;
use crate::engine::tests::locked::counted;
use crate::engine::tests::unanswered::{Claims, Unanswered, acked, acks, claimed, holding};

const MIB: usize = 1 << 20;

impl Sender {
    /// For tests that look at the results alone.
    pub(in crate::engine) fn to(results: &Arc<Results>) -> Self {
        Self::new(&[Arc::clone(results), Arc::default(), Arc::default()])
    }
}

fn sizes(batch: &[Settling]) -> Vec<usize> {
    batch.iter().map(|one| one.bytes() / MIB).collect()
}

/// It is that of a handler that blocked its thread for longer than the drain and the last writes
/// took.
#[tokio::test]
async fn a_result_that_nobody_takes_any_more_is_told_as_lost() {
    let results = Arc::<Results>::default();
    let sender = Sender::to(&results);
    let store = holding(1).await;
    let (reader, counts) = counted(&Unanswered::new(&store, Claims::Answered).shared());
    let mut one = acked(&claimed(&store, 1).await, &reader).remove(0);
    one.report.dispatched(Instant::now(), Duration::ZERO, 1, &reader.teller);
    drop(results);
    sender.send(Box::new(one)).await;
    drop(sender);
    let [subscriber] = &counts.subscribers()[..] else { panic!("there is one") };
    assert_eq!((subscriber.dispatched, subscriber.lease_lost), (1, 1));
}

#[tokio::test]
async fn no_more_results_wait_than_there_is_memory_for() {
    let results = Arc::new(Results::default());
    let sender = Sender::to(&results);
    for one in acks(&[MIB; 32]) {
        sender.send(Box::new(one)).await;
    }
    let mut late = pin!(sender.send(Box::new(acks(&[MIB]).remove(0))));
    assert!(poll!(late.as_mut()).is_pending());
    assert_eq!(results.next().await.unwrap().len(), 32);
    late.await;
    assert_eq!(sizes(&results.next().await.unwrap()), [1]);
}

#[tokio::test]
async fn a_batch_ends_at_its_bytes_and_a_result_that_has_more_goes_alone() {
    let results = Arc::new(Results::default());
    let sender = Sender::to(&results);
    for one in acks(&[20 * MIB, 11 * MIB]) {
        sender.send(Box::new(one)).await;
    }
    sender.send(Box::new(acks(&[40 * MIB]).remove(0))).await;
    assert_eq!(sizes(&results.next().await.unwrap()), [20, 11]);
    // Beside a write that hangs.
    assert_eq!(sizes(&results.next().await.unwrap()), [40]);
    for one in acks(&[10 * MIB, 10 * MIB, 11 * MIB, 10 * MIB]) {
        sender.send(Box::new(one)).await;
    }
    assert_eq!(sizes(&results.next().await.unwrap()), [10, 10, 11]);
}

async fn send(sender: &Sender, count: usize) {
    for one in acks(&vec![0; count]) {
        sender.send(Box::new(one)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn beside_a_write_that_hangs_one_result_goes_alone_but_no_dead_letter() {
    const HOUR: Duration = Duration::from_secs(3600);
    for (results, waits) in [(Results::default(), false), (Results::of_letters(), true)] {
        let results = Arc::new(results);
        let sender = Sender::to(&results);
        send(&sender, 1).await;
        assert_eq!(results.next().await.unwrap().len(), 1);
        send(&sender, 1).await;
        let second = timeout(HOUR, results.next()).await;
        assert_eq!(second.is_err(), waits);
        send(&sender, HALF).await;
        let more = timeout(HOUR, results.next()).await.unwrap().unwrap();
        assert_eq!(more.len(), HALF + usize::from(waits));
        send(&sender, 1).await;
        // The one that hung is written: who wrote it asks again.
        results.written();
        results.written();
        if !waits {
            results.written();
        }
        assert_eq!(results.next().await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn all_is_done_when_nothing_waits_is_written_or_put_off() {
    let results = Arc::new(Results::default());
    let sender = Sender::to(&results);
    assert!(results.is_done());
    send(&sender, 2).await;
    assert!(!results.is_done(), "they wait");
    assert_eq!(results.next().await.unwrap().len(), 2);
    assert!(!results.is_done(), "they are written");
    let mut put_off = 0;
    results.put_off(&mut put_off, 1);
    results.written();
    assert!(!results.is_done(), "one is put off");
    results.put_off(&mut put_off, 0);
    assert!(results.is_done());
}

/// The settler that wrote the last batch may be busy with letters that wait for a lock.
#[tokio::test(start_paused = true)]
async fn a_dead_letter_does_not_wait_for_who_wrote_the_last_one() {
    let results = Arc::new(Results::of_letters());
    let sender = Sender::to(&results);
    send(&sender, 1).await;
    assert_eq!(results.next().await.unwrap().len(), 1);
    let mut other = pin!(results.next());
    send(&sender, 1).await;
    assert!(poll!(other.as_mut()).is_pending(), "a write is under way");
    results.written();
    let batch = timeout(Duration::from_secs(3600), other).await;
    assert_eq!(batch.unwrap().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn settlers_wait_as_long_as_somebody_can_send_and_then_all_end() {
    for of_letters in [true, false] {
        let (acks, letters) = (Arc::default(), Arc::new(Results::of_letters()));
        let ways: Ways = [acks, letters, Arc::default()];
        let way = &ways[usize::from(of_letters)];
        let (mut one, mut two) = (pin!(way.next()), pin!(way.next()));
        let mut wait = async |who: &str| {
            assert!(poll!(one.as_mut()).is_pending() && poll!(two.as_mut()).is_pending(), "{who}");
        };
        let (sender, dies) = (Sender::new(&ways), Letters::of(&ways));
        let clone = sender.clone();
        wait("a worker, its clone, and a settler of others").await;
        drop(sender);
        wait("the clone").await;
        drop(clone);
        if of_letters {
            wait("a settler of others, whose acks may become letters").await;
            drop(dies);
        }
        let ended = timeout(Duration::from_secs(3600), async { tokio::join!(one, two) }).await;
        assert!(matches!(ended, Ok((None, None))), "of letters: {of_letters}");
    }
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Otherwise it would spin for as long as the write takes.
#[tokio::test]
async fn who_waits_for_a_write_sleeps_though_nobody_can_send_any_more() {
    let results = Arc::new(Results::of_letters());
    let sender = Sender::to(&results);
    send(&sender, 1).await;
    assert_eq!(results.next().await.unwrap().len(), 1);
    send(&sender, 1).await;
    drop(sender);
    let woken = Arc::<Woken>::default();
    let waker = Arc::clone(&woken).into();
    let mut other = pin!(results.next());
    assert!(other.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(!woken.0.load(Ordering::SeqCst));
    results.written();
    assert!(woken.0.load(Ordering::SeqCst));
    assert_eq!(other.await.unwrap().len(), 1);
}

/// Otherwise one of these would find the timer still there.
#[tokio::test(start_paused = true)]
async fn acks_of_timers_come_before_those_that_set_them_again() {
    let (results, timers) = (Arc::<Results>::default(), Arc::<Results>::default());
    let sender = Sender::new(&[Arc::clone(&results), Arc::default(), Arc::clone(&timers)]);
    let mut ack = Box::new(acks(&[0]).remove(0)).ruled(Settlement::Ack { messages: vec![] });
    ack.timer = true;
    sender.send(ack).await;
    send(&sender, 1).await;
    for way in [timers, results] {
        let batch = timeout(Duration::from_secs(3600), way.next()).await;
        assert_eq!(batch.expect("one each").unwrap().len(), 1);
    }
}

/// As a handler does that comes behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_offered_is_taken_though_its_thread_is_blocked() {
    let results = Arc::<Results>::default();
    let sender = Sender::to(&results);
    let settler = tokio::spawn(async move {
        let taken = results.next().await.map(|batch| batch.len());
        (taken, Instant::now())
    });
    sleep(Duration::from_millis(100)).await;
    let blocked = tokio::spawn(async move {
        assert!(sender.offer(Box::new(acks(&[0]).remove(0))).is_none());
        std::thread::sleep(Duration::from_secs(3));
        Instant::now()
    });
    let ((taken, at), ended) = (settler.await.unwrap(), blocked.await.unwrap());
    assert!(taken == Some(1) && at < ended, "{:?}", at - ended);
}
