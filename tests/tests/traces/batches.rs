//! A run over several messages is the child of none of them, and has links to all.

use outbox::testing::TestBroker;
use outbox::{Batch, Outgoing, subscriber};

use super::*;

#[subscriber("batches: many", batch = 10)]
async fn many(batch: Batch<u64>) {
    tracing::info!("a batch of {}", batch.iter().count());
    for item in batch {
        let next = Outgoing::new("batches: next", &item.message);
        item.context.publisher().collect(next).unwrap();
    }
}

fn parent(number: u64) -> String {
    format!("00-{number:032x}-{number:016x}-01")
}

#[tokio::test]
async fn a_batch_is_one_span_with_a_link_to_each_message_s_publisher() {
    LazyLock::force(&ENDED);
    let broker = TestBroker::with([many::subscriber()]);
    let traced = (11..=13).map(|n| foreign("batches: many", &parent(n)));
    let wrong = foreign("batches: many", "garbage");
    broker.publish_batch(traced.chain([wrong])).await.unwrap();
    let run = telling("a batch of 4");
    assert_eq!((&*run.name, run.parent_span_id), ("process batches: many", SpanId::INVALID));
    let links: Vec<_> = run.links.iter().map(|link| traceparent(&link.span_context)).collect();
    assert_eq!(links, [11, 12, 13].map(parent));
    assert_eq!(attribute(&run, "messaging.batch.message_count"), Some(4.into()));
    assert_eq!(attribute(&run, "messaging.message.id"), None);
    let rows = broker.rows();
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert_eq!(published_in(&row), Some(traceparent(&run.span_context)));
    }
}

#[tokio::test]
async fn a_batch_of_one_message_goes_on_with_its_trace() {
    let broker = TestBroker::with([many::subscriber()]);
    let (published, here) = request(broker.publish("batches: many", &7)).await;
    let run = only(here.trace_id(), "process batches: many");
    assert_eq!((publisher_of(&run), run.links.len()), (here.span_id(), 0));
    let id = published.unwrap().id().unwrap().to_string();
    let said = attribute(&run, "messaging.message.id").map(|id| id.to_string());
    assert_eq!(said, Some(id));
    assert_eq!(attribute(&run, "messaging.batch.message_count"), None);
}

#[subscriber(["batches: left", "batches: right"], batch = 10)]
async fn both(_: Vec<u64>) {
    tracing::info!("from both queues");
}

#[tokio::test]
async fn a_batch_of_several_queues_names_none() {
    LazyLock::force(&ENDED);
    let broker = TestBroker::with([both::subscriber()]);
    let messages = ["batches: left", "batches: right"].map(|queue| Outgoing::new(queue, &7));
    broker.publish_batch(messages).await.unwrap();
    let run = telling("from both queues");
    assert_eq!(run.name, "process");
    assert_eq!(attribute(&run, "messaging.destination.name"), None);
}
