//! `max_deliveries`, crashes and poison isolation.

use std::sync::{Arc, Mutex};

use outbox::retry::Constant;
use outbox::{Context, FailureReason, Outgoing};
use tokio::time::Instant;

use super::*;

#[tokio::test]
async fn delivered_too_often_after_failures_is_judged_without_a_run() {
    let subscriber = it(failing).retry(Constant::new(SECOND)).max_deliveries(2);
    let (broker, _) = first_ending(subscriber).await;
    broker.run_until_idle().await;
    assert_eq!(runs(&broker), 2, "the third delivery does not run");
    let letter = only_letter(&broker);
    assert_eq!(letter.failure_reason, FailureReason::MaxDeliveries);
    assert_eq!(letter.deliveries_count, 3);
    assert_eq!((letter.last_exception, letter.error_kind, letter.note), (None, None, None));
}

/// What begins with less than that may run out before it is extended for the first time,
/// and the handler would run on beside the next one.
#[tokio::test(start_paused = true)]
async fn no_handler_starts_on_the_last_third_of_a_lease() {
    let left = Arc::new(Mutex::new(Vec::new()));
    let saw = Arc::clone(&left);
    let slow = Subscriber::new("it", "q", move |context: Context| {
        saw.lock().unwrap().push(context.lease_deadline() - Instant::now());
        tokio::time::sleep(48 * SECOND)
    });
    let broker = TestBroker::with([slow.lease_ttl(60 * SECOND)]);
    broker.publish_batch([1, 2].map(|n| Outgoing::new("q", &n))).await.unwrap();
    broker.run_until_idle().await;
    assert_eq!(*left.lock().unwrap(), [60 * SECOND; 2], "the second one is claimed anew");
    let deliveries: Vec<_> = broker.calls("it").iter().map(|call| call.deliveries).collect();
    assert_eq!(deliveries, [1, 1], "given back as if it had never been claimed");
}

#[tokio::test]
async fn max_deliveries_without_dead_letters_deletes() {
    let broker = TestBroker::with([it(failing).retry(Constant::new(SECOND)).max_deliveries(1)]);
    let broker = broker.without_dlq();
    broker.publish("q", &7).await.unwrap();
    broker.run_until_idle().await;
    assert!(broker.rows().is_empty() && broker.dlq_rows().is_empty());
    assert_eq!(runs(&broker), 1);
}

#[tokio::test]
async fn exactly_max_deliveries_are_run() {
    for max in 1..=4 {
        let subscriber = it(failing).retry(Constant::new(SECOND)).max_deliveries(max);
        let (broker, _) = first_ending(subscriber).await;
        broker.run_until_idle().await;
        assert_eq!(runs(&broker) as u64, max);
    }
}

#[tokio::test]
async fn a_crash_leaves_the_row_leased_and_redeliver_runs_it_again() {
    let broker = TestBroker::with([it(|| ())]).starts_at(std::time::UNIX_EPOCH);
    broker.crash_next(1);
    broker.publish("q", &7).await.unwrap();
    assert_eq!(broker.calls("it")[0].ending, Ending::Unwritten);
    let row = &broker.rows()[0];
    assert!(row.acquired_token.is_some() && row.acquired_at.is_some());
    let first_token = row.acquired_token;

    broker.crash_next(1);
    broker.redeliver().await;
    let row = &broker.rows()[0];
    assert_eq!((row.deliveries_count, row.attempts_count), (2, 0));
    assert_ne!(row.acquired_token, first_token, "each claim has a fresh token");

    broker.redeliver().await;
    assert!(broker.rows().is_empty());
    assert_eq!(runs(&broker), 3);
}

#[tokio::test]
async fn a_lease_runs_out_by_itself_on_the_broker_s_clock() {
    let broker = TestBroker::with([it(|| ()).lease_ttl(30 * SECOND)]);
    broker.crash_next(1);
    broker.publish("q", &7).await.unwrap();
    broker.advance(29 * SECOND).await;
    assert_eq!(runs(&broker), 1);
    broker.advance(SECOND).await;
    assert_eq!(runs(&broker), 2);
    assert!(broker.rows().is_empty());
}

#[tokio::test]
async fn an_expired_row_past_max_deliveries_runs_once_more_before_it_is_judged() {
    let broker = TestBroker::with([it(|| ()).max_deliveries(1)]);
    broker.crash_next(1);
    broker.publish("q", &7).await.unwrap();
    broker.redeliver().await;
    assert_eq!(runs(&broker), 2, "an innocent row is run, not judged");
    assert!(broker.rows().is_empty() && broker.dlq_rows().is_empty());
}

#[tokio::test]
async fn a_row_that_crashes_alone_is_proven_guilty() {
    let broker = TestBroker::with([it(|| ()).max_deliveries(1)]);
    broker.crash_next(2);
    broker.publish("q", &7).await.unwrap();
    broker.redeliver().await;
    assert_eq!(runs(&broker), 2);
    assert_eq!(broker.rows().len(), 1, "not judged on suspicion");
    broker.redeliver().await;
    assert_eq!(runs(&broker), 2, "judged without a third run");
    assert_eq!(only_letter(&broker).failure_reason, FailureReason::MaxDeliveries);
}

#[tokio::test]
async fn a_row_that_is_judged_without_a_run_uses_up_no_crash() {
    let subscriber = it(failing).retry(Constant::new(SECOND)).max_deliveries(1);
    let (broker, _) = first_ending(subscriber).await;
    broker.crash_next(1);
    let late = Outgoing::new("q", &8).delay(SECOND).header("outbox-expires-in", "1000");
    broker.publish_with(late).await.unwrap();
    broker.run_until_idle().await;
    assert_eq!(runs(&broker), 1);
    let reasons: Vec<_> = broker.dlq_rows().iter().map(|letter| letter.failure_reason).collect();
    assert_eq!(reasons, [FailureReason::MaxDeliveries, FailureReason::Expired]);
    broker.publish("q", &9).await.unwrap();
    assert_eq!(broker.calls("it")[1].ending, Ending::Unwritten);
}

#[tokio::test]
async fn one_poisonous_message_dead_letters_no_innocent() {
    let broker = TestBroker::with([it(|| ()).max_deliveries(3).fetch_batch(20)]);
    // Sixteen rows in one claim; the process dies at the first of them, again
    // and again, so that the others come back unstarted and unsettled.
    broker.crash_next(16);
    let messages = (0..16).map(|n| Outgoing::new("q", &n));
    broker.publish_batch(messages).await.unwrap();
    for _ in 0..2 {
        broker.crash_next(16);
        broker.redeliver().await;
    }
    assert!(broker.rows().iter().all(|row| row.deliveries_count == 3));
    // Now each runs alone; only the first one kills its process.
    broker.crash_next(1);
    broker.redeliver().await;
    assert_eq!(broker.rows().len(), 1, "fifteen innocents are handled");
    assert!(broker.dlq_rows().is_empty());
    broker.redeliver().await;
    let letter = only_letter(&broker);
    assert_eq!((letter.failure_reason, letter.original_id), (FailureReason::MaxDeliveries, 1));
}

#[tokio::test]
async fn a_row_that_fails_when_run_alone_is_judged_by_its_failure() {
    let subscriber = it(failing).retry(Constant::new(SECOND).max_attempts(1)).max_deliveries(1);
    let broker = TestBroker::with([subscriber]);
    broker.crash_next(1);
    broker.publish("q", &7).await.unwrap();
    broker.redeliver().await;
    let letter = only_letter(&broker);
    assert_eq!(letter.failure_reason, FailureReason::RetryTerminal);
    assert_eq!(letter.last_exception.as_deref(), Some("\"no stock\""));
}

#[tokio::test]
async fn without_max_deliveries_a_crashing_row_comes_back_for_ever() {
    let broker = TestBroker::with([it(|| ())]);
    broker.crash_next(1);
    broker.publish("q", &7).await.unwrap();
    for n in 2..=20 {
        broker.crash_next(1);
        broker.redeliver().await;
        assert_eq!(broker.rows()[0].deliveries_count, n);
    }
    assert!(broker.dlq_rows().is_empty());
}
