//! A message whose time ends while its run waits for others is not started.

use std::sync::{Arc, Mutex};

use outbox::prelude::*;
use outbox::{FailureReason, FromContext};
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
