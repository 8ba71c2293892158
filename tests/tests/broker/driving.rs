//! The broker itself: its clock, its queues, its limits.

use std::time::SystemTime;

use outbox::retry::Constant;
use outbox::{
    Context, FailureReason, Outcome, Outgoing, Published, State, TimerConflict, subscriber,
};
use outbox_tests::wait::soon;

use super::*;

#[tokio::test]
async fn handlers_have_run_when_publish_returns() {
    let (broker, _) = first_ending(it(|| ())).await;
    assert_eq!(runs(&broker), 1);
    assert_eq!(broker.calls("it")[0].json::<u64>().unwrap(), 7);
}

#[tokio::test]
#[should_panic = "no subscriber is called `confrim`: [\"it\"]"]
async fn calls_of_a_subscriber_that_there_is_not_are_no_calls_of_none() {
    let _ = TestBroker::with([it(|| ())]).calls("confrim");
}

#[tokio::test]
async fn a_call_tells_the_kind_of_its_error() {
    let failing = Subscriber::new("it", "q", |context: Context| async move {
        assert!(context.attempts() > 0, "the first one");
        Err::<(), _>("no stock")
    });
    let broker = TestBroker::with([failing]);
    broker.publish("q", &7).await.unwrap();
    broker.run_until_idle().await;
    let calls = broker.calls("it");
    let kinds: Vec<_> = calls.iter().take(2).map(|call| call.error_kind.as_deref()).collect();
    assert_eq!(kinds, [Some("panic"), Some("&str")]);
}

#[tokio::test]
async fn a_clock_that_is_set_is_that_of_the_messages() {
    let day = std::time::Duration::from_secs(86_400);
    let start = SystemTime::UNIX_EPOCH + 30_000 * day;
    let broker = TestBroker::with([it(|| ())]).starts_at(start);
    broker.publish_with(Outgoing::new("q", &7).at(start + day)).await.unwrap();
    assert_eq!((runs(&broker), broker.rows()[0].created_at), (0, start));
    broker.run_until_idle().await;
    assert_eq!((runs(&broker), broker.calls("it")[0].at), (1, start + day));
}

#[tokio::test]
async fn more_messages_than_a_test_has_steps_are_no_endless_ones() {
    let broker = TestBroker::with([it(|| ())]);
    broker.publish_batch((0..100_001).map(|n| Outgoing::new("q", &n))).await.unwrap();
    assert_eq!(runs(&broker), 100_001);
}

#[tokio::test]
async fn a_queue_that_nobody_reads_keeps_the_row() {
    let broker = TestBroker::with([it(|| ())]);
    broker.publish("elsewhere", &7).await.unwrap();
    broker.run_until_idle().await;
    let row = &broker.rows()[0];
    assert_eq!((row.queue.as_str(), row.deliveries_count), ("elsewhere", 0));
}

#[tokio::test]
async fn a_handler_s_failure_is_no_failure_of_publish() {
    let broker = TestBroker::with([it(failing)]);
    assert_eq!(broker.publish("q", &7).await.unwrap(), Published::Inserted(1));
}

#[tokio::test]
async fn the_whole_batch_is_there_before_the_first_handler_runs() {
    let rows = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = std::sync::Arc::clone(&rows);
    let subscriber = Subscriber::new("it", "q", move |context: Context| {
        let broker = context.state::<TestBroker>().unwrap().clone();
        seen.lock().unwrap().push(broker.rows().len());
        async {}
    });
    let broker = TestBroker::with([subscriber]);
    let broker = broker.clone().state(broker);
    let ids = broker.publish_batch((0..3).map(|n| Outgoing::new("q", &n))).await.unwrap();
    assert_eq!(ids, [1, 2, 3].map(Published::Inserted));
    assert_eq!(*rows.lock().unwrap(), [3, 2, 1]);
}

#[tokio::test]
async fn a_batch_with_one_bad_message_publishes_nothing() {
    let broker = TestBroker::with([it(|| ())]);
    let bad = [Outgoing::new("q", &1), Outgoing::new("", &2)];
    assert!(broker.publish_batch(bad).await.is_err());
    assert_eq!((broker.rows().len(), runs(&broker)), (0, 0));
    assert!(broker.publish_batch([]).await.unwrap().is_empty());
}

#[tokio::test]
async fn messages_run_in_the_order_they_were_published() {
    let broker = TestBroker::with([it(|| ())]);
    broker.publish_batch((0..25).map(|n| Outgoing::new("q", &n))).await.unwrap();
    let order: Vec<u64> = broker.calls("it").iter().map(|call| call.json().unwrap()).collect();
    assert_eq!(order, (0..25).collect::<Vec<_>>());
}

#[subscriber("parent")]
async fn parent(n: u64, State(broker): State<TestBroker>) -> outbox::Result<()> {
    broker.publish("child", &(n + 1)).await?;
    assert_eq!(broker.calls("child").len(), 0, "the child waits for its parent");
    Ok(())
}

#[subscriber("child")]
async fn child(_: u64) {}

#[tokio::test]
async fn what_a_handler_publishes_runs_when_the_handler_is_done() {
    let broker = TestBroker::with([parent::subscriber(), child::subscriber()]);
    let broker = broker.clone().state(broker);
    broker.publish("parent", &1).await.unwrap();
    assert_eq!(broker.calls("child")[0].json::<u64>().unwrap(), 2);
    assert!(broker.rows().is_empty());
}

#[subscriber("spawning")]
async fn spawning(n: u64, State(broker): State<TestBroker>) -> anyhow::Result<()> {
    let inner = broker.clone();
    tokio::spawn(async move { inner.publish("child", &(n + 1)).await }).await??;
    assert_eq!(broker.calls("child").len(), 0, "the child waits for its parent");
    Ok(())
}

#[tokio::test]
async fn what_a_task_of_a_handler_publishes_runs_when_the_handler_is_done() {
    let broker = TestBroker::with([spawning::subscriber(), child::subscriber()]);
    let broker = broker.clone().state(broker);
    soon("the handler ends", broker.publish("spawning", &1)).await.unwrap();
    assert_eq!(broker.calls("child")[0].json::<u64>().unwrap(), 2);
    assert!(broker.rows().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_publishes_meanwhile_leaves_no_row_behind() {
    let broker = TestBroker::with([it(|| ())]);
    for round in 1..=500 {
        let publish = |n: u64| {
            let broker = broker.clone();
            tokio::spawn(async move { broker.publish("q", &n).await })
        };
        for one in [1, 2, 3, 4].map(publish) {
            one.await.unwrap().unwrap();
        }
        assert_eq!((runs(&broker), broker.rows().len()), (4 * round, 0));
    }
}

#[tokio::test]
async fn advance_runs_each_row_at_its_time_and_no_later_one() {
    let broker = TestBroker::with([it(|| ())]);
    let start = broker.now();
    for seconds in [30, 10, 20] {
        let later = Outgoing::new("q", &seconds).delay(Duration::from_secs(seconds));
        broker.publish_with(later).await.unwrap();
    }
    assert_eq!(runs(&broker), 0);
    broker.advance(25 * SECOND).await;
    let at: Vec<SystemTime> = broker.calls("it").iter().map(|call| call.at).collect();
    assert_eq!(at, [start + 10 * SECOND, start + 20 * SECOND]);
    assert_eq!(broker.now(), start + 25 * SECOND);
    broker.run_until_idle().await;
    assert_eq!(broker.now(), start + 30 * SECOND);
}

#[tokio::test]
async fn a_message_at_a_time_runs_then_and_one_of_the_past_at_once() {
    let broker = TestBroker::with([it(|| ())]);
    let then = broker.now() + Duration::from_secs(86_400);
    broker.publish_with(Outgoing::new("q", &1).at(then)).await.unwrap();
    broker.publish_with(Outgoing::new("q", &2).at(SystemTime::UNIX_EPOCH)).await.unwrap();
    assert_eq!(broker.calls("it")[0].json::<u64>().unwrap(), 2);
    broker.run_until_idle().await;
    assert_eq!(broker.calls("it")[1].at, then);
}

fn timer(n: u64, seconds: u64) -> Outgoing {
    Outgoing::new("q", &n).timer_id("t").delay(Duration::from_secs(seconds))
}

#[tokio::test]
async fn one_live_row_a_timer_name() {
    let broker = TestBroker::with([it(|| ())]);
    assert_eq!(broker.publish_with(timer(1, 10)).await.unwrap(), Published::Inserted(1));
    assert_eq!(broker.publish_with(timer(2, 20)).await.unwrap(), Published::Duplicate);
    let extend = timer(3, 30).on_conflict(TimerConflict::Extend);
    assert_eq!(broker.publish_with(extend).await.unwrap(), Published::Extended(1));
    broker.run_until_idle().await;
    assert_eq!(runs(&broker), 1);
    assert_eq!(broker.calls("it")[0].json::<u64>().unwrap(), 3);
    assert!(broker.publish_with(timer(4, 1)).await.unwrap().id().is_some(), "free again");
}

/// As the README says: due an hour after the last call, and given up an hour later.
#[tokio::test]
async fn a_timer_that_is_moved_again_and_again_expires_from_its_last_move() {
    let hour = 3600 * SECOND;
    let (told, mut created) = tokio::sync::mpsc::unbounded_channel();
    let telling = Subscriber::new("it", "q", move |ctx: Context| {
        told.send(ctx.created_at()).unwrap();
        async {}
    });
    let broker = TestBroker::with([telling]);
    let mut moved = broker.now();
    let call = |n| timer(n, 3600).expires_in(2 * hour).on_conflict(TimerConflict::Extend);
    for n in 0..5 {
        moved = broker.now();
        broker.publish_with(call(n)).await.unwrap();
        broker.advance(hour - SECOND).await;
    }
    assert_eq!(runs(&broker), 0);
    broker.run_until_idle().await;
    assert!(broker.dlq_rows().is_empty(), "{:?}", broker.dlq_rows());
    assert_eq!(created.try_recv().unwrap(), moved);
    assert_eq!(broker.calls("it")[0].json::<u64>().unwrap(), 4);
}

#[tokio::test]
async fn to_advance_by_more_than_the_clock_counts_runs_what_there_is() {
    let broker = TestBroker::with([it(|| ())]);
    broker.publish_with(timer(1, 3600)).await.unwrap();
    broker.advance(std::time::Duration::MAX).await;
    assert_eq!(runs(&broker), 1);
}

#[tokio::test]
async fn a_moved_timer_has_all_its_deliveries_before_it() {
    let failing = it(failing).max_deliveries(2).retry(Constant::new(10 * SECOND));
    let broker = TestBroker::with([failing]);
    broker.publish_with(timer(1, 0)).await.unwrap();
    broker.advance(10 * SECOND).await;
    assert_eq!(runs(&broker), 2);
    let moved = timer(2, 60).on_conflict(TimerConflict::Extend);
    assert_eq!(broker.publish_with(moved).await.unwrap(), Published::Extended(1));
    broker.run_until_idle().await;
    assert_eq!(runs(&broker), 4);
    let letter = only_letter(&broker);
    assert_eq!(letter.failure_reason, FailureReason::MaxDeliveries);
    assert_eq!((&letter.payload[..], letter.deliveries_count), (&b"2"[..], 3));
}

#[tokio::test]
async fn a_cancelled_timer_never_runs_and_a_leased_one_is_left_alone() {
    let broker = TestBroker::with([it(|| ())]);
    broker.publish_with(timer(1, 10)).await.unwrap();
    assert!(broker.cancel_timer("q", "t").await.unwrap());
    assert!(!broker.cancel_timer("q", "t").await.unwrap());
    broker.run_until_idle().await;
    assert_eq!(runs(&broker), 0);
    broker.crash_next(1);
    broker.publish_with(Outgoing::new("q", &2).timer_id("t")).await.unwrap();
    assert!(!broker.cancel_timer("q", "t").await.unwrap());
}

#[tokio::test]
#[should_panic(expected = r#"a handler of {"q"} snoozes or retries for ever"#)]
async fn a_handler_that_retries_for_ever_is_told_to_the_test() {
    let (broker, _) = first_ending(it(failing).retry(Constant::new(SECOND))).await;
    broker.run_until_idle().await;
}

#[tokio::test]
#[should_panic(expected = "for ever")]
async fn a_handler_that_snoozes_for_no_time_is_told_to_the_test() {
    let (broker, ending) = first_ending(it(|| Outcome::Snooze(Duration::ZERO))).await;
    assert_eq!(ending, Ending::Snoozed(Duration::ZERO));
    broker.run_until_idle().await;
}

#[tokio::test]
async fn endless_retries_do_not_keep_advance_from_ending() {
    let (broker, _) = first_ending(it(failing).retry(Constant::new(SECOND))).await;
    broker.advance(60 * SECOND).await;
    assert_eq!(runs(&broker), 61);
}

#[tokio::test]
async fn clones_share_everything() {
    let broker = TestBroker::with([it(|| ())]);
    let other = broker.clone();
    let (one, two) = tokio::join!(broker.publish("q", &1), other.publish("q", &2));
    assert!(one.is_ok() && two.is_ok());
    assert_eq!(runs(&broker), 2);
}

#[tokio::test]
async fn a_new_broker_has_every_handler_of_the_test() {
    let broker = TestBroker::new().state(TestBroker::with([]));
    // Refused, as some handler of this binary wants a state; but it is known.
    let error = broker.publish("child", &1).await.unwrap_err().to_string();
    assert!(error.contains("`curious`") && error.contains("`mail`"), "{error}");
}

/// Two services of one test.
#[tokio::test]
async fn what_a_handler_publishes_to_another_broker_runs_there() {
    let ships = TestBroker::with([it(|| ())]);
    let other = ships.clone();
    let orders = Subscriber::new("order", "orders", move |_: Context| {
        let ships = other.clone();
        async move {
            ships.publish("q", &1).await.unwrap();
            ships.publish_with(Outgoing::new("q", &2).delay(60 * SECOND)).await.unwrap();
            ships.run_until_idle().await;
        }
    });
    let orders = TestBroker::with([orders]);
    orders.publish("orders", &1).await.unwrap();
    assert_eq!(runs(&ships), 2);
    assert!(ships.rows().is_empty() && orders.rows().is_empty());
}

/// Tokio would say that a runtime cannot start within a runtime.
#[tokio::test]
#[should_panic = "call it in a plain `#[test] fn`"]
async fn a_simulation_within_a_runtime_says_where_it_belongs() {
    let broker = TestBroker::with([]);
    TestBroker::simulate(1).run(broker, async |_| Ok::<_, String>(()));
}
