//! A message whose time ends while its run waits for others is not started.

use std::sync::{Arc, Mutex};

use outbox::prelude::*;
use outbox::{AckPolicy, Batch, FailureReason, FromContext};
use tokio::time::sleep;

use super::*;

const LEASE: Duration = Duration::from_secs(60);

/// Takes three seconds a run. What was delivered once to a process that died runs alone, and
/// after the others of its batch.
fn slow() -> Subscriber {
    let slow = Subscriber::batches("it", "q", 2, |_: Vec<Context>| sleep(3 * SECOND));
    slow.max_deliveries(1).lease_ttl(LEASE)
}

/// The payloads of the runs, each with how it ended.
fn ran(broker: &TestBroker) -> Vec<(u64, Ending)> {
    broker.calls("it").iter().map(|call| (call.json().unwrap(), call.ending.clone())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_message_that_expires_before_it_runs_alone_is_not_started() {
    let broker = TestBroker::with([slow()]);
    broker.crash_next(1);
    let first = Outgoing::new("q", &1).expires_in(LEASE + SECOND);
    broker.publish_with(first).await.unwrap();
    // Due when the lease of the first one ends, of which its run has taken three seconds.
    broker.publish_with(Outgoing::new("q", &2).delay(LEASE - 3 * SECOND)).await.unwrap();
    broker.advance(LEASE).await;
    assert_eq!(ran(&broker), [(1, Ending::Unwritten), (2, Ending::Acked)]);
    assert_eq!(only_letter(&broker).failure_reason, FailureReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_expires_while_it_waits_to_run_alone_is_not_started() {
    let broker = TestBroker::with([slow()]);
    broker.crash_next(1);
    let second = Outgoing::new("q", &2).expires_in(2 * SECOND);
    broker.publish_batch([Outgoing::new("q", &1), second]).await.unwrap();
    assert_eq!(ran(&broker).len(), 2, "both in one run");
    broker.redeliver().await;
    assert_eq!(ran(&broker)[2..], [(1, Ending::Acked)]);
    assert_eq!(only_letter(&broker).failure_reason, FailureReason::Expired);
}

/// Something that a run waits for.
struct Waited;

impl FromContext for Waited {
    type Rejection = std::convert::Infallible;

    const SAME_FOR_ALL: bool = true;

    async fn from_context(_: &Context) -> Result<Self, Self::Rejection> {
        sleep(3 * SECOND).await;
        Ok(Self)
    }
}

type Runs = Arc<Mutex<Vec<Vec<u64>>>>;

#[subscriber("expires in a batch", batch = 3)]
async fn in_a_batch(all: Vec<u64>, _: Waited, State(runs): State<Runs>) {
    runs.lock().unwrap().push(all);
}

#[subscriber("expires before a thread", batch = 3)]
fn before_a_thread(all: Vec<u64>, _: Waited, State(runs): State<Runs>) {
    runs.lock().unwrap().push(all);
}

#[subscriber("expires alone before a thread")]
fn alone(n: u64, _: Waited, State(runs): State<Runs>) {
    runs.lock().unwrap().push(vec![n]);
}

#[subscriber("expires and would be answered", batch = 5, publish = "doubled")]
async fn answered(all: Batch<u64>, _: Waited) -> Vec<u64> {
    all.into_iter().map(|item| 2 * item.message).collect()
}

/// The others would be put off with it, and so with the next one that expires, and so on.
#[tokio::test(start_paused = true)]
async fn a_message_that_expires_while_its_batch_waits_is_left_out_of_it() {
    for subscriber in [in_a_batch::subscriber(), before_a_thread::subscriber()] {
        let (runs, queue) = (Runs::default(), subscriber.queues()[0].clone());
        let broker = TestBroker::with([subscriber]).state(Arc::clone(&runs));
        let of = |n: u64| Outgoing::new(&queue, &n);
        let late = |n| of(n).expires_in(2 * SECOND);
        broker.publish_batch([late(1), of(2), late(3)]).await.unwrap();
        assert_eq!(*runs.lock().unwrap(), [[2]]);
        broker.publish_batch([late(4), late(5)]).await.unwrap();
        broker.run_until_idle().await;
        assert_eq!(runs.lock().unwrap().len(), 1, "nothing is left of the second batch");
        let letters = broker.dlq_rows();
        assert!(letters.iter().all(|one| one.failure_reason == FailureReason::Expired));
        assert_eq!((letters.len(), broker.rows().len()), (4, 0));
    }
}

/// It has no row any more, and would be gone without a run.
#[tokio::test(start_paused = true)]
async fn what_is_acked_first_is_left_out_of_no_run() {
    let all = || [in_a_batch::subscriber(), before_a_thread::subscriber(), alone::subscriber()];
    for (policy, ran) in [(AckPolicy::AckFirst, vec![1, 2]), (AckPolicy::NackOnError, vec![2])] {
        for subscriber in all() {
            let (runs, queue) = (Runs::default(), subscriber.queues()[0].clone());
            let broker = TestBroker::with([subscriber.ack(policy)]).state(Arc::clone(&runs));
            let late = Outgoing::new(&queue, &1).expires_in(2 * SECOND);
            broker.publish_batch([late, Outgoing::new(&queue, &2)]).await.unwrap();
            broker.run_until_idle().await;
            let mut seen = runs.lock().unwrap().concat();
            seen.sort_unstable();
            assert_eq!(seen, ran, "{policy:?} of {queue}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_batch_that_publishes_each_answer_is_that_of_its_own_message() {
    let asked = Runs::default();
    let layer = {
        let asked = Arc::clone(&asked);
        move |ctx: Context, next: outbox::Next| {
            asked.lock().unwrap().push(vec![ctx.decode().unwrap_or_default()]);
            next.run(ctx)
        }
    };
    let broker = TestBroker::with([answered::subscriber().layer(layer)]);
    let of =
        |n: u64| Outgoing::new("expires and would be answered", &n).correlation_id(n.to_string());
    let late = |n| of(n).expires_in(2 * SECOND);
    let odd = Outgoing::new("expires and would be answered", "no number");
    broker.publish_batch([odd, late(1), of(2), late(3), of(4)]).await.unwrap();
    let answers: Vec<_> = broker.rows().into_iter().filter(|row| row.queue == "doubled").collect();
    let of_whom = |row: &outbox::Row| row.headers().unwrap().correlation_id().map(str::to_owned);
    let seen: Vec<_> =
        answers.iter().map(|row| (row.payload.to_vec(), of_whom(row).unwrap())).collect();
    assert_eq!(seen, [(b"4".to_vec(), "2".to_owned()), (b"8".to_vec(), "4".to_owned())]);
    assert!(asked.lock().unwrap().len() >= 5, "a layer stands around each");
}
