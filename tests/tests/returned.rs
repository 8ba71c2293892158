//! Messages that a handler returns or collects are published with its ack, or
//! not at all.

use std::sync::Mutex;
use std::time::Duration;

use outbox::retry::NoRetry;
use outbox::testing::{Ending, TestBroker};
use outbox::{AckPolicy, Context, Outgoing, PublishError, Publisher, Subscriber, subscriber};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct Order {
    id: i64,
}

#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct Confirmed {
    order: i64,
}

#[subscriber("one", publish = "confirmed")]
async fn one(order: Order) -> Confirmed {
    Confirmed { order: order.id }
}

#[subscriber("fallible", publish = "confirmed", retry = Constant("1s", max_attempts = 2))]
async fn fallible(order: Order) -> Result<Confirmed, String> {
    if order.id < 0 { Err("no such order".into()) } else { Ok(Confirmed { order: order.id }) }
}

#[subscriber("maybe", publish = "confirmed")]
async fn maybe(order: Order) -> Result<Option<Confirmed>, String> {
    Ok((order.id > 0).then_some(Confirmed { order: order.id }))
}

#[subscriber("several", publish = "confirmed")]
async fn several(order: Order) -> Vec<Confirmed> {
    (0..order.id).map(|order| Confirmed { order }).collect()
}

const LATER: &str = "later";

#[subscriber("chosen", publish = LATER)]
async fn chosen(order: Order) -> Outgoing {
    Outgoing::new("chosen by the handler", &order).header("k", "v").delay(Duration::from_secs(60))
}

#[subscriber("collected", retry = NoRetry)]
async fn collected(order: Order, publisher: Publisher) -> Result<(), String> {
    let confirmed = Outgoing::new("confirmed", &Confirmed { order: order.id });
    publisher.collect(confirmed).map_err(|error| error.to_string())?;
    if order.id < 0 { Err("too late".into()) } else { Ok(()) }
}

#[subscriber("limited", retry = NoRetry)]
async fn limited(order: Order, publisher: Publisher) -> Result<(), PublishError> {
    let confirmed = Outgoing::new("confirmed", &Confirmed { order: order.id });
    publisher.max_payload(r#"{"order":1}"#.len()).collect(confirmed)
}

#[subscriber("refused", publish = "confirmed", retry = NoRetry)]
async fn refused(order: Order) -> Outgoing {
    Outgoing::new("q".repeat(256), &order)
}

#[subscriber("timer")]
async fn every_minute(_: Order, ctx: Context, publisher: Publisher) -> Result<(), String> {
    let next = Outgoing::raw("timer", ctx.payload().to_vec())
        .timer_id("tick")
        .delay(Duration::from_secs(60));
    publisher.collect(next).map_err(|error| error.to_string())
}

static ACKED: Mutex<Vec<Result<(), PublishError>>> = Mutex::new(Vec::new());

#[subscriber("acked", ack = AckFirst)]
async fn acked_first(_: Order, publisher: Publisher) {
    ACKED.lock().unwrap().push(publisher.collect(Outgoing::new("confirmed", &1)));
}

async fn published(queue: &str, id: i64) -> (TestBroker, Vec<Confirmed>) {
    let broker = TestBroker::new();
    broker.publish(queue, &Order { id }).await.unwrap();
    broker.run_until_idle().await;
    let rows = broker.rows();
    let rows = rows.iter().filter(|row| row.queue == "confirmed");
    let bodies = rows.map(|row| serde_json::from_slice(&row.payload).unwrap()).collect();
    (broker, bodies)
}

#[tokio::test]
async fn a_returned_value_is_published_to_the_queue_of_the_option() {
    let (broker, bodies) = published("one", 7).await;
    assert_eq!(bodies, [Confirmed { order: 7 }]);
    assert_eq!(broker.rows().len(), 1);
}

#[tokio::test]
async fn a_returned_value_inherits_the_correlation_id() {
    let broker = TestBroker::with([one::subscriber()]);
    let order = Outgoing::new("one", &Order { id: 1 }).correlation_id("work-1");
    broker.publish_with(order).await.unwrap();
    assert_eq!(broker.rows()[0].headers().unwrap().correlation_id(), Some("work-1"));
}

#[tokio::test]
async fn an_error_publishes_nothing() {
    assert_eq!(published("fallible", 3).await.1, [Confirmed { order: 3 }]);
    let (broker, bodies) = published("fallible", -1).await;
    assert!(bodies.is_empty());
    assert_eq!(broker.calls("fallible").len(), 2);
}

#[tokio::test]
async fn none_publishes_nothing_and_acks() {
    let (broker, bodies) = published("maybe", 0).await;
    assert!(bodies.is_empty() && broker.rows().is_empty() && broker.dlq_rows().is_empty());
    assert_eq!(published("maybe", 1).await.1, [Confirmed { order: 1 }]);
}

#[tokio::test]
async fn several_values_are_published_in_order() {
    let bodies = published("several", 3).await.1;
    assert_eq!(bodies.iter().map(|one| one.order).collect::<Vec<_>>(), [0, 1, 2]);
}

#[tokio::test]
async fn an_outgoing_message_chooses_for_itself() {
    let broker = TestBroker::with([chosen::subscriber()]);
    broker.publish("chosen", &Order { id: 1 }).await.unwrap();
    let row = &broker.rows()[0];
    assert_eq!(row.queue, "chosen by the handler");
    assert_eq!(row.headers().unwrap().get("k"), Some("v"));
    assert_eq!(row.next_attempt_at.duration_since(broker.now()).unwrap().as_secs(), 60);
}

#[tokio::test]
async fn collected_messages_share_the_fate_of_the_ack() {
    assert_eq!(published("collected", 1).await.1, [Confirmed { order: 1 }]);
    let (broker, bodies) = published("collected", -1).await;
    assert!(bodies.is_empty());
    assert_eq!(broker.dlq_rows().len(), 1);
}

#[tokio::test]
async fn a_publisher_with_a_limit_collects_within_it() {
    assert_eq!(published("limited", 1).await.1, [Confirmed { order: 1 }]);
    let (broker, bodies) = published("limited", 10).await;
    assert!(bodies.is_empty());
    let letter = &broker.dlq_rows()[0];
    assert_eq!(letter.error_kind.as_deref(), Some("publish"));
    let why = letter.last_exception.as_deref().unwrap();
    assert!(why.contains("PayloadTooLarge"), "{why}");
}

#[tokio::test]
async fn a_lost_lease_publishes_nothing() {
    let broker = TestBroker::with([one::subscriber()]);
    broker.crash_next(1);
    broker.publish("one", &Order { id: 1 }).await.unwrap();
    assert_eq!(broker.calls("one")[0].ending, Ending::Unwritten);
    assert!(broker.rows().iter().all(|row| row.queue == "one"));
    broker.redeliver().await;
    assert_eq!(broker.rows().len(), 1);
    assert_eq!(broker.rows()[0].queue, "confirmed");
}

#[tokio::test]
async fn a_message_that_cannot_be_published_fails_the_delivery() {
    let (broker, bodies) = published("refused", 1).await;
    assert!(bodies.is_empty());
    assert_eq!(broker.dlq_rows()[0].error_kind.as_deref(), Some("publish"));
}

#[tokio::test]
async fn a_timer_can_set_itself_again_while_it_runs() {
    let broker = TestBroker::with([every_minute::subscriber()]);
    broker.publish_with(Outgoing::new("timer", &Order { id: 1 }).timer_id("tick")).await.unwrap();
    broker.advance(Duration::from_secs(300)).await;
    assert_eq!(broker.calls("every_minute").len(), 6);
    assert_eq!(broker.rows().len(), 1);
}

/// The macro sees only a policy that stands in the attribute.
#[tokio::test]
async fn a_returned_message_under_ack_first_is_refused_at_the_start() {
    for returning in [one::subscriber(), chosen::subscriber()] {
        let queue = returning.queues()[0].clone();
        let broker = TestBroker::with([returning.ack(AckPolicy::AckFirst)]);
        let refused = broker.publish(&queue, &Order { id: 1 }).await.unwrap_err().to_string();
        assert!(refused.contains("`AckFirst`") && refused.contains("`publish`"), "{refused}");
        assert!(broker.rows().is_empty());
    }
}

#[tokio::test]
async fn nothing_can_be_collected_once_the_row_is_acked() {
    let (broker, _) = published("acked", 1).await;
    let results = ACKED.lock().unwrap();
    assert!(matches!(results[..], [Err(PublishError::NoDelivery)]), "{results:?}");
    assert!(broker.rows().is_empty());
}

/// It would be told `Ok`, and nobody would publish it.
#[tokio::test]
async fn nothing_can_be_collected_once_the_handler_has_ended() {
    for fails in [false, true] {
        let (send, mut late) = tokio::sync::mpsc::unbounded_channel();
        let it = Subscriber::new("it", "q", move |ctx: Context| {
            send.send((ctx.publisher(), ctx)).unwrap();
            async move { if fails { Err("on purpose") } else { Ok(()) } }
        });
        let broker = TestBroker::with([it.retry(NoRetry)]);
        broker.publish("q", &1).await.unwrap();
        let (publisher, ctx) = late.recv().await.unwrap();
        for publisher in [publisher, ctx.publisher()] {
            let refused = publisher.collect(Outgoing::new("late", &1));
            assert!(matches!(refused, Err(PublishError::NoDelivery)), "{refused:?}");
        }
        assert_eq!(broker.rows().len(), 0);
    }
}

/// Nor one that was asked for a publisher only then.
#[tokio::test]
async fn nothing_can_be_collected_by_who_asks_once_the_handler_has_ended() {
    let (send, mut late) = tokio::sync::mpsc::unbounded_channel();
    let it = Subscriber::new("it", "q", move |ctx: Context| {
        send.send(ctx).unwrap();
        async {}
    });
    let broker = TestBroker::with([it]);
    broker.publish("q", &1).await.unwrap();
    let publisher = late.recv().await.unwrap().publisher();
    let refused = publisher.collect(Outgoing::new("late", &1));
    assert!(matches!(refused, Err(PublishError::NoDelivery)), "{refused:?}");
}
