//! The test broker.

use std::pin::Pin;
use std::time::Duration;

use outbox::retry::Constant;
use outbox::testing::{Ending, TestBroker};
use outbox::{Context, Outgoing, Subscriber};
use outbox_tests::wait::soon;
use tokio::task::yield_now;

use super::super::LEASE;
use super::{MOST, polled, swept};

/// Of the functions that are called here.
pub const NAMES: [&str; 7] = [
    "testing/broker.rs publish",
    "testing/broker.rs publish_with",
    "testing/broker.rs publish_batch",
    "testing/broker.rs cancel_timer",
    "testing/broker.rs advance",
    "testing/broker.rs run_until_idle",
    "testing/broker.rs redeliver",
];

type Ran<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;
type Call = for<'a> fn(&'a TestBroker) -> Ran<'a>;

const SOON: Duration = Duration::from_secs(1);

fn calls() -> [(&'static str, Call); 7] {
    fn two() -> [Outgoing; 2] {
        [1, 2].map(|n| Outgoing::new("q", &n))
    }
    [
        (NAMES[0], |it| {
            Box::pin(async { assert!(it.publish("q", &1).await.unwrap().id().is_some()) })
        }),
        (NAMES[1], |it| {
            Box::pin(async {
                assert!(it.publish_with(Outgoing::new("q", &1)).await.unwrap().id().is_some())
            })
        }),
        (NAMES[2], |it| Box::pin(async { drop(it.publish_batch(two()).await.unwrap()) })),
        (NAMES[3], |it| Box::pin(async { assert!(it.cancel_timer("q", "t").await.unwrap()) })),
        (NAMES[4], |it| Box::pin(it.advance(SOON))),
        (NAMES[5], |it| Box::pin(it.run_until_idle())),
        (NAMES[6], |it| Box::pin(it.redeliver())),
    ]
}

/// A handler that waits a few times, and fails at first.
async fn slowly(context: Context) -> Result<(), String> {
    for _ in 0..3 {
        yield_now().await;
    }
    if context.attempts() == 0 { Err("at first".into()) } else { Ok(()) }
}

/// A timer, a row that is to be tried again, one that is leased by who died.
async fn prepared() -> TestBroker {
    let subscriber = Subscriber::new("slowly", "q", slowly).retry(Constant::new(SOON));
    let broker = TestBroker::with([subscriber.lease_ttl(LEASE)]);
    let timer = Outgoing::new("q", &0).timer_id("t").delay(SOON);
    broker.publish_with(timer).await.unwrap();
    broker.publish("q", &1).await.unwrap();
    broker.crash_next(1);
    broker.publish("q", &2).await.unwrap();
    broker
}

#[tokio::test]
async fn a_call_of_the_test_broker_may_be_dropped_at_any_point() {
    let mut all = 0;
    for (name, run) in calls() {
        for times in 0.. {
            assert!(times < MOST, "{name} does not end");
            let broker = prepared().await;
            let ended = polled(times, run(&broker)).await;
            // A run that was dropped left its row leased, as a crash would.
            soon(name, broker.redeliver()).await;
            soon(name, broker.run_until_idle()).await;
            soon(name, broker.publish("q", &7)).await.unwrap();
            soon(name, broker.run_until_idle()).await;
            assert!(broker.rows().is_empty(), "{name} after {times} polls: {:?}", broker.rows());
            assert!(broker.dlq_rows().is_empty());
            let handled = |n: i64| {
                let mut calls = broker.calls("slowly").into_iter();
                calls.any(|call| call.ending == Ending::Acked && call.json::<i64>().unwrap() == n)
            };
            let timer = name == "testing/broker.rs cancel_timer" || handled(0);
            assert!(timer && [1, 2, 7].into_iter().all(handled), "{name} after {times} polls");
            if ended.is_some() {
                println!("{name}: dropped after 0 to {} polls", times.saturating_sub(1));
                all += times;
                break;
            }
        }
    }
    swept("calls of the test broker", all);
}
