//! A message whose time ends while its run waits for others is not started.

use outbox::{Context, FailureReason, Outgoing};

use super::*;

const LEASE: Duration = Duration::from_secs(60);

/// Takes three seconds a run. What was delivered once to a process that died runs alone, and
/// after the others of its batch.
fn slow() -> Subscriber {
    let slow = Subscriber::batches("it", "q", 2, |_: Vec<Context>| tokio::time::sleep(3 * SECOND));
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
