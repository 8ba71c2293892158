//! The dead-letter design, under our names.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outbox::retry::{Constant, NoRetry};
use outbox::{AckPolicy, FailureReason, Outcome, Outgoing};

use super::*;

/// Of a subscriber that says nothing else.
const LEASE: Duration = Duration::from_secs(60);

/// An error that counts how often it is rendered.
struct Counting(Arc<AtomicUsize>);

impl std::fmt::Debug for Counting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fetch_add(1, Ordering::Relaxed);
        f.write_str("Counting")
    }
}

impl std::fmt::Display for Counting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fetch_add(1, Ordering::Relaxed);
        f.write_str("counting")
    }
}

impl std::error::Error for Counting {}

#[tokio::test]
async fn the_dead_letter_is_built_only_on_a_terminal_failure() {
    let rendered = Arc::new(AtomicUsize::new(0));
    let error = Arc::clone(&rendered);
    let subscriber = it(move || Err::<(), _>(Counting(Arc::clone(&error))));
    let (broker, _) = first_ending(subscriber.retry(Constant::new(SECOND).max_attempts(3))).await;
    broker.advance(SECOND).await;
    assert_eq!((runs(&broker), rendered.load(Ordering::Relaxed)), (2, 0));
    broker.advance(SECOND).await;
    assert_eq!((runs(&broker), rendered.load(Ordering::Relaxed)), (3, 1));
    assert_eq!(only_letter(&broker).last_exception.as_deref(), Some("Counting"));
}

#[tokio::test]
async fn a_letter_holds_what_was_published_byte_for_byte() {
    let broker = TestBroker::with([it(failing).retry(NoRetry)]);
    let message = Outgoing::raw("q", &b"\x00\xff not json \xf0"[..])
        .header("tenant", "acme")
        .header("n", 5)
        .correlation_id("c-1")
        .content_type("application/x-own")
        .timer_id("t-1");
    broker.publish_with(message).await.unwrap();
    let letter = only_letter(&broker);
    assert_eq!(letter.payload, &b"\x00\xff not json \xf0"[..]);
    let headers = letter.headers().unwrap();
    assert_eq!((headers.get("tenant"), headers.correlation_id()), (Some("acme"), Some("c-1")));
    assert_eq!(headers.value("n").unwrap(), 5);
    assert_eq!(headers.content_type(), Some("application/x-own"));
    assert_eq!(letter.timer_id.as_deref(), Some("t-1"));
    assert_eq!((letter.queue.as_str(), letter.original_id), ("q", 1));
    assert_eq!((letter.deliveries_count, letter.created_at), (1, broker.now()));
    assert_eq!(letter.failed_at, broker.now());
}

#[tokio::test]
async fn created_at_and_failed_at_are_told_apart() {
    let (broker, _) =
        first_ending(it(failing).retry(Constant::new(9 * SECOND).max_attempts(2))).await;
    let created = broker.now();
    broker.run_until_idle().await;
    let letter = only_letter(&broker);
    assert_eq!((letter.created_at, letter.failed_at), (created, created + 9 * SECOND));
}

#[tokio::test]
async fn a_failing_insert_keeps_the_row_and_after_repair_it_is_buried_once() {
    for subscriber in [
        it(failing).retry(NoRetry),
        it(failing).ack(AckPolicy::RejectOnError),
        it(|| Outcome::reject("no")),
    ] {
        let broker = TestBroker::with([subscriber]);
        broker.break_dlq(true);
        broker.publish("q", &7).await.unwrap();
        for n in 1..=3 {
            assert_eq!((broker.rows().len(), broker.dlq_rows().len()), (1, 0));
            let row = &broker.rows()[0];
            assert_eq!((row.attempts_count, row.deliveries_count), (0, 0), "nothing is spent");
            assert_eq!(row.next_attempt_at, broker.now() + LEASE);
            let calls = broker.calls("it");
            assert_eq!((calls.len(), &calls[n - 1].ending), (n, &Ending::Unwritten));
            broker.advance(LEASE).await;
        }
        broker.break_dlq(false);
        broker.advance(LEASE).await;
        assert_eq!(only_letter(&broker).deliveries_count, 1);
    }
}

#[tokio::test]
async fn a_row_delivered_too_often_waits_for_the_repair_too() {
    let broker = TestBroker::with([it(failing).retry(Constant::new(SECOND)).max_deliveries(1)]);
    broker.break_dlq(true);
    broker.publish("q", &7).await.unwrap();
    broker.advance(SECOND).await;
    assert_eq!((broker.rows().len(), broker.dlq_rows().len(), runs(&broker)), (1, 0, 1));
    broker.break_dlq(false);
    broker.redeliver().await;
    broker.run_until_idle().await;
    assert_eq!(only_letter(&broker).failure_reason, FailureReason::MaxDeliveries);
}

#[tokio::test]
async fn without_a_table_a_broken_one_does_not_matter() {
    let broker = TestBroker::with([it(failing).retry(NoRetry)]).without_dlq();
    broker.break_dlq(true);
    broker.publish("q", &7).await.unwrap();
    assert!(broker.rows().is_empty() && broker.dlq_rows().is_empty());
}

#[tokio::test]
async fn letters_are_listed_oldest_first_and_each_once() {
    let broker = TestBroker::with([it(failing).retry(NoRetry)]);
    for n in 0..5 {
        broker.publish("q", &n).await.unwrap();
    }
    let ids: Vec<_> = broker.dlq_rows().iter().map(|one| (one.id, one.original_id)).collect();
    assert_eq!(ids, [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]);
}

#[tokio::test]
async fn the_reasons_are_the_four_words_of_the_column() {
    use FailureReason::{Expired, MaxDeliveries, Rejected, RetryTerminal};
    let words = [MaxDeliveries, RetryTerminal, Rejected, Expired].map(FailureReason::as_str);
    assert_eq!(words, ["max_deliveries", "retry_terminal", "rejected", "expired"]);
}

#[tokio::test]
async fn a_timer_name_is_free_again_once_its_row_is_dead() {
    let broker = TestBroker::with([it(failing).retry(NoRetry)]);
    for _ in 0..2 {
        let timer = Outgoing::new("q", &7).timer_id("t");
        assert!(broker.publish_with(timer).await.unwrap().id().is_some());
    }
    assert_eq!(broker.dlq_rows().len(), 2);
}
