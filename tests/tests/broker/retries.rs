//! Retry strategies, as the macro writes them.

use std::time::SystemTime;

use outbox::retry::{Constant, FailedAttempt, RetryStrategy};
use outbox::{Context, FailureReason, subscriber};

use super::*;

type Failure = Result<(), String>;

fn no(_: u64) -> Failure {
    Err("no".into())
}

#[subscriber("exponential", retry = Exponential(initial = "1s", multiplier = 3, max_delay = "5s", max_attempts = 5))]
async fn exponential(n: u64) -> Failure {
    no(n)
}

#[subscriber("linear", retry = Linear(initial = "2s", step = "3s", max_attempts = 4))]
async fn linear(n: u64) -> Failure {
    no(n)
}

#[subscriber("constant", retry = Constant("5s", max_attempts = 3))]
async fn constant(n: u64) -> Failure {
    no(n)
}

#[subscriber("delays", retry = Delays(["1s", "10s", "1m"]))]
async fn delays(n: u64) -> Failure {
    no(n)
}

#[subscriber("none", retry = NoRetry)]
async fn none(n: u64) -> Failure {
    no(n)
}

#[subscriber("default")]
async fn default(n: u64) -> Failure {
    no(n)
}

#[subscriber("total", retry = Constant("10s", max_total_delay = "25s"))]
async fn total(n: u64) -> Failure {
    no(n)
}

#[subscriber("own", retry = Own)]
async fn own(n: u64) -> Failure {
    no(n)
}

#[subscriber("jittered", retry = Constant("10s", jitter = 1.0, max_attempts = 30))]
async fn jittered(n: u64) -> Failure {
    no(n)
}

struct Own;

impl RetryStrategy for Own {
    fn next_delay(&self, failed: &FailedAttempt<'_>) -> Option<Duration> {
        let error = failed.error?;
        assert_eq!(error.kind(), "String");
        (failed.attempts < 3).then(|| failed.elapsed + SECOND)
    }
}

/// A strategy that fails the test when it is asked.
pub(super) struct NeverAsked;

impl RetryStrategy for NeverAsked {
    fn next_delay(&self, _: &FailedAttempt<'_>) -> Option<Duration> {
        unreachable!("the strategy was asked")
    }
}

/// Runs a message to its end; the waits between the runs, in milliseconds.
async fn waits(subscriber: Subscriber) -> Vec<u128> {
    let (name, queue) = (subscriber.name(), subscriber.queues()[0].clone());
    let broker = TestBroker::with([subscriber]);
    broker.publish(&queue, &7).await.unwrap();
    broker.run_until_idle().await;
    assert_eq!(only_letter(&broker).failure_reason, FailureReason::RetryTerminal);
    let at: Vec<SystemTime> = broker.calls(name).iter().map(|call| call.at).collect();
    at.windows(2).map(|pair| pair[1].duration_since(pair[0]).unwrap().as_millis()).collect()
}

#[tokio::test]
async fn every_strategy_waits_as_it_says_and_then_ends() {
    assert_eq!(waits(exponential::subscriber()).await, [1_000, 3_000, 5_000, 5_000]);
    assert_eq!(waits(linear::subscriber()).await, [2_000, 5_000, 8_000]);
    assert_eq!(waits(constant::subscriber()).await, [5_000, 5_000]);
    assert_eq!(waits(delays::subscriber()).await, [1_000, 10_000, 60_000]);
    assert_eq!(waits(none::subscriber()).await, []);
    assert_eq!(waits(own::subscriber()).await, [1_000, 2_000]);
}

#[tokio::test]
async fn the_default_strategy_is_the_reference_s() {
    let waits = waits(default::subscriber()).await;
    assert_eq!(waits.len(), 9, "ten runs");
    for (step, wait) in waits.into_iter().enumerate() {
        let plain = 1_000 * 2_u128.pow(u32::try_from(step).unwrap());
        assert!(
            wait >= plain * 9 / 10 - 1 && wait <= (plain * 11 / 10).min(300_000),
            "{step}: {wait}"
        );
    }
}

#[tokio::test]
async fn max_total_delay_is_no_interval_too_long() {
    // Runs at 0, 10 and 20 s; one at 30 s would come later than 25 s.
    assert_eq!(waits(total::subscriber()).await, [10_000, 10_000]);
}

#[tokio::test]
async fn jitter_spreads_both_ways_within_its_bounds() {
    let waits = waits(jittered::subscriber()).await;
    assert!(waits.iter().all(|wait| (5_000..=15_000).contains(wait)), "{waits:?}");
    assert!(waits.iter().any(|wait| *wait < 10_000) && waits.iter().any(|wait| *wait > 10_000));
}

#[tokio::test]
async fn a_strategy_that_panics_ends_the_message_as_retry_terminal_with_its_error() {
    let (broker, _) = first_ending(it(failing).retry(NeverAsked)).await;
    let letter = only_letter(&broker);
    assert_eq!(letter.failure_reason, FailureReason::RetryTerminal);
    assert_eq!(letter.last_exception.as_deref(), Some("\"no stock\""));
}

struct Endless;

impl RetryStrategy for Endless {
    fn next_delay(&self, _: &FailedAttempt<'_>) -> Option<Duration> {
        Some(Duration::MAX)
    }
}

#[tokio::test]
async fn a_delay_beyond_all_time_is_cut_to_what_the_databases_hold() {
    let ten_years = Duration::from_secs(10 * 365 * 24 * 3600);
    let (broker, _) = first_ending(it(failing).retry(Endless)).await;
    assert_eq!(broker.rows()[0].next_attempt_at, broker.now() + ten_years);
    let (broker, _) = first_ending(it(|| outbox::Outcome::Snooze(Duration::MAX))).await;
    assert_eq!(broker.rows()[0].next_attempt_at, broker.now() + ten_years);
    let later = outbox::Outgoing::new("q", &7).delay(Duration::MAX);
    let broker = TestBroker::with([it(|| ())]);
    broker.publish_with(later).await.unwrap();
    assert_eq!(broker.rows()[0].next_attempt_at, broker.now() + ten_years);
}

#[tokio::test]
async fn a_second_failure_keeps_the_time_of_the_first() {
    let (broker, _) = first_ending(it(failing).retry(Constant::new(SECOND))).await;
    let first = broker.now();
    broker.advance(SECOND).await;
    let row = &broker.rows()[0];
    assert_eq!((row.first_attempt_at, row.last_attempt_at), (Some(first), Some(first + SECOND)));
    assert_eq!((row.attempts_count, row.deliveries_count), (2, 2));
}

/// The last run counts, too.
#[tokio::test(start_paused = true)]
async fn the_time_that_a_strategy_is_told_of_is_that_since_the_first_failure() {
    let slow = Subscriber::new("slow", "q", |_: Context| async {
        tokio::time::sleep(10 * SECOND).await;
        Err::<(), _>(String::from("no"))
    });
    let slow = slow.retry(Own);
    // From start to start: ten of the run, then a second more than passed since the first failure.
    let seconds: Vec<_> = waits(slow).await.iter().map(|wait| wait / 1_000).collect();
    assert_eq!(seconds, [10 + 1, 10 + 12]);
}
