//! What the author of a test may rely on: `TestBroker::simulate`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::retry::{Constant, NoRetry};
use outbox::testing::{Ending, TestBroker};
use outbox::{AckPolicy, Context, Error, FailureReason, State, Subscriber, subscriber};

const SECOND: Duration = Duration::from_secs(1);

/// What a handler wrote elsewhere, an order a line.
type Charges = Arc<Mutex<Vec<u64>>>;

/// Charges an order unless it is charged: `keyed`; or without looking.
fn charging(charges: &Charges, keyed: bool) -> Subscriber {
    let charges = Arc::clone(charges);
    Subscriber::new("charge", "orders", move |context: Context| {
        let charges = Arc::clone(&charges);
        async move {
            let order = context.decode().unwrap();
            {
                let mut charges = charges.lock().unwrap();
                if !keyed || !charges.contains(&order) {
                    charges.push(order);
                }
            }
            tokio::time::sleep(SECOND).await;
        }
    })
    .lease_ttl(3 * SECOND)
}

/// Whether each of three orders is charged once.
fn charged_once(seed: u64, keyed: bool) -> bool {
    let charges = Charges::default();
    let broker = TestBroker::with([charging(&charges, keyed)]);
    TestBroker::simulate(seed).run(broker, async |broker| {
        for order in 1..=3_u64 {
            broker.publish("orders", &order).await?;
        }
        broker.run_until_idle().await;
        assert!(broker.rows().is_empty() && broker.dlq_rows().is_empty());
        Ok::<_, Error>(())
    });
    let mut charges = charges.lock().unwrap().clone();
    charges.sort_unstable();
    charges == [1, 2, 3]
}

#[test]
fn a_handler_that_may_run_twice_survives_every_seed_and_one_that_may_not_does_not() {
    assert!((0..200).all(|seed| charged_once(seed, true)));
    let twice = (0..200).filter(|seed| !charged_once(*seed, false)).count();
    assert!(twice >= 20, "of 200 seeds {twice} find that it charges twice");
}

#[subscriber("simulated", retry = Constant("1s"))]
async fn counting(n: usize, State(sum): State<Arc<AtomicUsize>>) -> Result<(), &'static str> {
    if sum.fetch_add(n, Ordering::SeqCst) == 0 { Err("the first one") } else { Ok(()) }
}

#[test]
fn states_layers_calls_and_counts_are_the_broker_s() {
    let (sum, layered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let passes = Arc::clone(&layered);
    let broker = TestBroker::new().state(Arc::clone(&sum)).layer(move |context, next| {
        passes.fetch_add(1, Ordering::SeqCst);
        next.run(context)
    });
    TestBroker::simulate(7).run(broker.clone(), async |broker| {
        let begun = broker.now();
        broker.publish("simulated", &1).await?;
        broker.publish("nobody", &1).await?;
        broker.run_until_idle().await;
        assert!(broker.now() >= begun + SECOND, "the retry is a second later");
        assert_eq!(broker.rows().len(), 1, "nobody reads the other one");
        let before = broker.now();
        broker.advance(SECOND).await;
        assert_eq!(broker.now(), before + SECOND);
        Ok::<_, Error>(())
    });
    let calls = broker.calls("counting");
    assert_eq!(sum.load(Ordering::SeqCst), calls.len());
    assert_eq!(layered.load(Ordering::SeqCst), calls.len());
    assert_eq!(calls.last().unwrap().ending, Ending::Acked);
    assert_eq!(calls.last().unwrap().json::<usize>().unwrap(), 1);
    let retried = calls.iter().filter(|call| matches!(call.ending, Ending::Retried(_))).count();
    assert_eq!(calls.last().unwrap().attempts, retried as u64);
    assert!(calls.is_sorted_by_key(|call| call.at));
    assert_eq!(broker.stats().subscribers()[0].name, "counting");
}

#[test]
fn what_fails_for_good_is_a_dead_letter_or_gone_in_every_seed() {
    let failing = || {
        let handler = |_: Context| async { Err::<(), _>("in vain") };
        Subscriber::new("it", "q", handler).retry(Constant::new(SECOND).max_attempts(3))
    };
    for seed in 0..50 {
        for keeps in [true, false] {
            let broker = TestBroker::with([failing()]);
            let broker = if keeps { broker } else { broker.without_dlq() };
            TestBroker::simulate(seed).run(broker, async |broker| {
                broker.publish("q", &7).await?;
                broker.run_until_idle().await;
                assert!(broker.rows().is_empty());
                let letters = broker.dlq_rows();
                assert_eq!(letters.len(), usize::from(keeps));
                let why = FailureReason::RetryTerminal;
                assert!(letters.iter().all(|letter| letter.failure_reason == why));
                let last = broker.calls("it").pop().unwrap();
                assert_eq!(last.ending, Ending::Terminal(why), "seed {seed}");
                Ok::<_, Error>(())
            });
        }
    }
}

#[test]
fn a_letter_that_could_not_be_written_is_told_of_as_such_and_not_as_a_snooze() {
    let mut unwritten = 0;
    for seed in 0..50 {
        let handler = |_: Context| async { Err::<(), _>("in vain") };
        let failing = Subscriber::new("it", "q", handler).lease_ttl(3 * SECOND);
        TestBroker::simulate(seed).run(
            TestBroker::with([failing.retry(NoRetry)]),
            async |broker| {
                broker.break_dlq(true);
                broker.publish("q", &7).await?;
                broker.advance(20 * SECOND).await;
                let calls = broker.calls("it");
                let all_told = calls.iter().all(|call| call.ending == Ending::Unwritten);
                assert!(all_told, "seed {seed}: {calls:?}");
                unwritten += calls.len();
                broker.break_dlq(false);
                broker.run_until_idle().await;
                assert_eq!(broker.dlq_rows().len(), 1);
                Ok::<_, Error>(())
            },
        );
    }
    assert!(unwritten >= 50, "{unwritten}");
}

/// One whose wake is lost waits for the next poll.
#[test]
fn a_poll_that_is_hours_away_is_waited_for() {
    const HOUR: Duration = Duration::from_secs(3600);
    for seed in 0..50 {
        let rare =
            Subscriber::new("it", "q", |_: Context| async {}).min_poll(HOUR).max_poll(3 * HOUR);
        let broker = TestBroker::with([rare]);
        TestBroker::simulate(seed).run(broker, async |broker| {
            for n in 0..5 {
                broker.publish("q", &n).await?;
                broker.advance(20 * SECOND).await;
            }
            broker.run_until_idle().await;
            assert!(broker.rows().is_empty());
            Ok::<_, Error>(())
        });
    }
}

/// Runs in a process of its own, for what it prints.
#[test]
fn a_run_that_fails_prints_its_seed() {
    if std::env::var("OUTBOX_FAIL").is_ok() {
        let broker = TestBroker::with([charging(&Charges::default(), true)]);
        TestBroker::simulate(4711).run(broker, async |_| Err::<(), _>("the invariant is broken"));
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "broker::a_run_that_fails_prints_its_seed", "--nocapture"])
        .env("OUTBOX_FAIL", "1")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("the invariant is broken"), "{said}");
    assert!(said.contains("`TestBroker::simulate(4711)` replays it"), "{said}");
}

fn panics(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).unwrap_err();
    let text = panic.downcast_ref::<String>().cloned();
    text.unwrap_or_else(|| panic.downcast_ref::<&str>().unwrap().to_string())
}

#[test]
fn a_handler_that_never_ends_is_found_and_not_waited_for() {
    let handler = |_: Context| async { std::future::pending::<()>().await };
    let endless = Subscriber::new("it", "q", handler).lease_ttl(SECOND);
    let said = panics(|| {
        TestBroker::simulate(1).run(TestBroker::with([endless]), async |broker| {
            broker.publish("q", &7).await?;
            broker.run_until_idle().await;
            Ok::<_, Error>(())
        });
    });
    assert!(said.contains("without end"), "{said}");
}

#[test]
fn a_broker_that_has_begun_is_refused_and_so_are_crashes_of_the_test_s_own() {
    let broker = TestBroker::with([charging(&Charges::default(), true)]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(broker.publish("orders", &1)).unwrap();
    let run = || TestBroker::simulate(1).run(broker, async |_| Ok::<_, Error>(()));
    assert!(panics(run).contains("before the first message"));
    let broker = TestBroker::with([charging(&Charges::default(), true)]);
    let run = || {
        TestBroker::simulate(1).run(broker, async |broker| {
            broker.crash_next(1);
            Ok::<_, Error>(())
        });
    };
    assert!(panics(run).contains("crashes of its own"));
}

/// Between its ack and its first line there is no row, and nothing that runs.
#[test]
fn idle_is_not_before_a_handler_that_is_acked_first_has_run() {
    for seed in 0..50 {
        let first = Subscriber::new("first", "orders", |_: Context| async {
            tokio::time::sleep(SECOND).await;
            Err::<(), _>("too late")
        });
        let broker = TestBroker::with([first.ack(AckPolicy::AckFirst)]);
        TestBroker::simulate(seed).run(broker, async |broker| {
            broker.publish("orders", &7).await?;
            broker.run_until_idle().await;
            let calls = broker.calls("first");
            broker.advance(60 * SECOND).await;
            assert_eq!(broker.calls("first"), calls);
            // A crash may have come in between.
            let kinds = calls.iter().filter_map(|call| call.error_kind.as_deref());
            assert!(kinds.clone().all(|kind| kind == "&str"));
            Ok::<_, Error>(())
        });
    }
}
