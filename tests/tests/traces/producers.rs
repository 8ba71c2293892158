//! The spans around publishes: what they say, and whose children they are.

use opentelemetry::trace::Status;
use outbox::testing::TestBroker;
use outbox::{Outgoing, subscriber};

use super::*;

fn says(span: &SpanData, name: &'static str) -> Option<String> {
    attribute(span, name).map(|value| value.to_string())
}

#[tokio::test]
async fn a_publish_is_a_span_of_a_producer_with_the_queue_and_the_row() {
    let broker = TestBroker::with([nobody::subscriber()]);
    let (published, here) = request(broker.publish("producers: one", &[1, 2])).await;
    let publish = only(here.trace_id(), "publish producers: one");
    assert_eq!(publish.span_kind, SpanKind::Producer);
    assert_eq!((publish.parent_span_id, publish.parent_span_is_remote), (here.span_id(), false));
    let id = published.unwrap().id().unwrap().to_string();
    for (name, value) in [
        ("messaging.system", "outbox"),
        ("messaging.operation.name", "publish"),
        ("messaging.operation.type", "send"),
        ("messaging.destination.name", "producers: one"),
        ("messaging.message.id", &*id),
        ("messaging.message.body.size", "5"),
        ("target", "outbox::publisher"),
    ] {
        assert_eq!(says(&publish, name).as_deref(), Some(value), "{name}");
    }
    assert_eq!(says(&publish, "messaging.batch.message_count"), None);
    assert_eq!(says(&publish, "error.type"), None);
    assert_eq!(publish.status, Status::Unset);
}

#[tokio::test]
async fn a_batch_is_published_in_one_span() {
    let broker = TestBroker::with([nobody::subscriber()]);
    let messages = (0..3).map(|n| Outgoing::new("producers: many", &n));
    let (published, here) = request(broker.publish_batch(messages)).await;
    published.unwrap();
    let publish = only(here.trace_id(), "publish producers: many");
    assert_eq!(attribute(&publish, "messaging.batch.message_count"), Some(3.into()));
    assert_eq!(says(&publish, "messaging.message.id"), None);
    let place = Some(traceparent(&publish.span_context));
    assert!(broker.rows().iter().all(|row| header(row, "traceparent") == place));

    let mixed = ["producers: a", "producers: b"].map(|queue| Outgoing::new(queue, &1));
    let (published, here) = request(broker.publish_batch(mixed)).await;
    published.unwrap();
    let publish = only(here.trace_id(), "publish");
    assert_eq!(says(&publish, "messaging.destination.name"), None);
}

#[tokio::test]
async fn a_publish_that_is_refused_says_so_with_the_kind_of_the_error() {
    let broker = TestBroker::with([nobody::subscriber()]);
    let message = Outgoing::new("producers: refused", &1).timer_id("");
    let (refused, here) = request(broker.publish_with(message)).await;
    refused.unwrap_err();
    let publish = only(here.trace_id(), "publish producers: refused");
    assert_eq!(publish.status, Status::error(""));
    assert_eq!(says(&publish, "error.type").as_deref(), Some("EmptyName"));
}

/// As if payload and queue were exchanged: a tracer is not sent all of it.
#[tokio::test]
async fn a_queue_with_too_long_a_name_is_cut_in_the_span() {
    let broker = TestBroker::with([nobody::subscriber()]);
    let queue = format!("producers: long {}", "é".repeat(10_000));
    let (refused, here) = request(broker.publish(&*queue, &1)).await;
    refused.unwrap_err();
    let cut: String = queue.chars().take(255).collect();
    let publish = only(here.trace_id(), &format!("publish {cut}"));
    assert_eq!(says(&publish, "messaging.destination.name"), Some(cut));
}

#[subscriber("producers: returns", publish = "producers: returned", retry = Constant("1s"))]
async fn returns(n: u64, ctx: outbox::Context) -> Result<u64, String> {
    if ctx.attempts() == 0 { Err("once more".into()) } else { Ok(n) }
}

#[tokio::test]
async fn a_returned_message_is_created_in_the_run_and_each_run_tells_its_attempt() {
    let broker = TestBroker::with([returns::subscriber()]);
    let (published, here) = request(broker.publish("producers: returns", &7)).await;
    published.unwrap();
    broker.run_until_idle().await;
    let runs = named(here.trace_id(), "process producers: returns");
    let attempts: Vec<_> = runs.iter().map(|run| attribute(run, "outbox.attempt")).collect();
    assert_eq!(attempts, [Some(1.into()), Some(2.into())]);
    let create = only(here.trace_id(), "create producers: returned");
    assert_eq!(create.parent_span_id, runs[1].span_context.span_id());
    assert_eq!(says(&create, "messaging.operation.type").as_deref(), Some("create"));
    let rows = broker.rows();
    assert_eq!(header(&rows[0], "traceparent"), Some(traceparent(&create.span_context)));
}

#[subscriber("producers: nobody")]
async fn nobody(_: u64) {}
