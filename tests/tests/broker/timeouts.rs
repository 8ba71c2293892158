//! Handlers that take too long, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outbox::retry::{Constant, NoRetry};
use outbox::{AckPolicy, FailureReason};
use outbox_tests::capture;

use super::*;

fn sleepy(seconds: u64) -> Subscriber {
    Subscriber::new("it", "q", move |_| tokio::time::sleep(Duration::from_secs(seconds)))
}

#[tokio::test(start_paused = true)]
async fn a_handler_over_its_timeout_fails_with_kind_timeout() {
    let (broker, ending) = first_ending(sleepy(60).timeout(5 * SECOND).retry(NoRetry)).await;
    assert_eq!(ending, Ending::Terminal(FailureReason::RetryTerminal));
    let letter = only_letter(&broker);
    assert_eq!(letter.error_kind.as_deref(), Some("timeout"));
    assert!(letter.last_exception.unwrap().contains("5s"));
}

#[tokio::test(start_paused = true)]
async fn the_log_tells_once_of_a_handler_that_hangs_though_its_message_is_acked_first() {
    capture::start();
    let told = |name: &str| {
        let tells = |line: &capture::Line| line.says("message", "has been running for 10m");
        capture::count(|line| tells(line) && line.says("subscriber", name))
    };
    for (policy, [long, short]) in [
        (AckPolicy::NackOnError, ["hangs_and_keeps_its_message", "ends_and_acks"]),
        (AckPolicy::AckFirst, ["hangs_after_its_ack", "ends_after_its_ack"]),
    ] {
        let sleeps = |name, minutes: u64| {
            let run = move |_| tokio::time::sleep(Duration::from_secs(minutes * 60));
            Subscriber::new(name, name, run).ack(policy)
        };
        let broker = TestBroker::with([sleeps(long, 35), sleeps(short, 9)]);
        for queue in [long, short] {
            broker.publish(queue, &7).await.unwrap();
        }
        assert_eq!([told(long), told(short)], [1, 0], "{policy:?}");
    }
}

/// Or a fn that fails in production would pass.
#[tokio::test(start_paused = true)]
#[should_panic = "tokio's clock is paused, and no plain fn has a timeout on it"]
async fn a_plain_fn_that_takes_longer_than_its_timeout_is_told_that_the_clock_is_paused() {
    let broker = TestBroker::with([plain::subscriber()]);
    broker.publish("timeouts: plain", &7).await.unwrap();
}

#[outbox::subscriber("timeouts: plain", timeout = "20ms")]
fn plain(_: u64) {
    std::thread::sleep(Duration::from_millis(30));
}

#[tokio::test(start_paused = true)]
async fn a_handler_within_its_timeout_is_acked() {
    let (_, ending) = first_ending(sleepy(4).timeout(5 * SECOND)).await;
    assert_eq!(ending, Ending::Acked);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_asks_the_strategy_and_spends_an_attempt() {
    let subscriber = sleepy(60).timeout(5 * SECOND).retry(Constant::new(SECOND).max_attempts(3));
    let (broker, ending) = first_ending(subscriber).await;
    assert_eq!(ending, Ending::Retried(SECOND));
    assert_eq!(broker.rows()[0].attempts_count, 1);
    broker.run_until_idle().await;
    assert_eq!(runs(&broker), 3);
    only_letter(&broker);
}

#[tokio::test(start_paused = true)]
async fn the_future_of_a_timed_out_handler_is_dropped() {
    struct Guard(Arc<AtomicUsize>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&dropped);
    let subscriber = Subscriber::new("it", "q", move |_| {
        let guard = Guard(Arc::clone(&count));
        async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        }
    });
    first_ending(subscriber.timeout(SECOND)).await;
    assert_eq!(dropped.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_timed_out_run_has_passed_on_the_broker_s_clock() {
    let broker = TestBroker::with([sleepy(60).timeout(5 * SECOND).retry(NoRetry)]);
    let start = broker.now();
    broker.publish("q", &7).await.unwrap();
    assert_eq!(broker.now(), start + 5 * SECOND);
}

/// A limit on the time of all runs would be another one in production.
#[tokio::test(start_paused = true)]
async fn the_time_of_every_run_has_passed_on_the_broker_s_clock() {
    let failing = Subscriber::new("it", "q", |_: outbox::Context| async {
        tokio::time::sleep(10 * SECOND).await;
        Err::<(), _>("no")
    });
    let broker =
        TestBroker::with([failing.retry(Constant::new(10 * SECOND).max_total_delay(59 * SECOND))]);
    let start = broker.now();
    broker.publish("q", &7).await.unwrap();
    assert_eq!(broker.now(), start + 10 * SECOND);
    broker.run_until_idle().await;
    // It failed after 10, 30, 50 and 70 s, and would have again after 90.
    assert_eq!(runs(&broker), 4);
    assert_eq!(broker.now(), start + 70 * SECOND);
}
