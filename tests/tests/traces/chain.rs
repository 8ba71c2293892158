//! From the publisher's span to the handler's, and on from there.

use outbox::testing::TestBroker;
use outbox::{Context, Outgoing, Publisher, State, subscriber};
use tracing::info_span;

use super::*;

#[subscriber("chain: a", publish = "chain: b")]
async fn a(n: u64) -> u64 {
    n
}

#[subscriber("chain: b")]
async fn b(n: u64, publisher: Publisher) {
    publisher.collect(Outgoing::new("chain: c", &n)).unwrap();
}

#[subscriber("chain: c")]
fn c(_: u64) {}

#[tokio::test]
async fn a_message_published_in_a_span_is_its_child() {
    let broker = TestBroker::with([a::subscriber()]);
    let publishing = async {
        broker.publish("elsewhere", &1).await.unwrap();
        broker.publish_batch([Outgoing::new("elsewhere", &2)]).await.unwrap();
    };
    let ((), here) = request(publishing).await;
    let rows = broker.rows();
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert_eq!(published_in(&row), Some(traceparent(&here)));
        assert_eq!(header(&row, "tracestate"), None);
    }
}

#[tokio::test]
async fn request_publish_handler_publish_handler_are_one_trace() {
    let broker = TestBroker::with([a::subscriber(), b::subscriber(), c::subscriber()]);
    let (published, here) = request(broker.publish("chain: a", &7)).await;
    published.unwrap();
    let mut parent = here.span_id();
    for queue in ["a", "b", "c"] {
        let run = only(here.trace_id(), &format!("process chain: {queue}"));
        assert_eq!(publisher_of(&run), parent, "{queue}");
        assert_eq!(run.span_kind, SpanKind::Consumer);
        parent = run.span_context.span_id();
    }
    let mut names: Vec<_> =
        spans(here.trace_id()).into_iter().map(|span| span.name.into_owned()).collect();
    names.sort_unstable();
    let of = |operation: &str, queue: &str| format!("{operation} chain: {queue}");
    let expected = [
        of("create", "b"),
        of("create", "c"),
        of("process", "a"),
        of("process", "b"),
        of("process", "c"),
        of("publish", "a"),
        "request".into(),
    ];
    assert_eq!(names, expected);
}

/// Publishes in every way there is, and in a span of its own.
#[subscriber("chain: ways", publish = "chain: returned")]
async fn ways(n: u64, ctx: Context, State(outer): State<TestBroker>) -> u64 {
    ctx.publisher().collect(Outgoing::new("chain: collected", &n)).unwrap();
    outer.publish("chain: published", &n).await.unwrap();
    let inner = info_span!("inner");
    inner.in_scope(|| ctx.publisher().collect(Outgoing::new("chain: inner", &n)).unwrap());
    n
}

#[tokio::test]
async fn what_a_handler_publishes_is_the_child_of_the_span_it_is_published_in() {
    let outer = TestBroker::with([a::subscriber()]);
    let broker = TestBroker::with([ways::subscriber()]).state(outer.clone());
    let (published, here) = request(broker.publish("chain: ways", &7)).await;
    published.unwrap();
    let run = only(here.trace_id(), "process chain: ways").span_context;
    let inner = only(here.trace_id(), "inner");
    assert_eq!(inner.parent_span_id, run.span_id());
    let rows = [broker.rows(), outer.rows()].concat();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let of = if row.queue == "chain: inner" { &inner.span_context } else { &run };
        assert_eq!(published_in(&row), Some(traceparent(of)), "{}", row.queue);
    }
}

#[subscriber("chain: fails", retry = Constant("1s", max_attempts = 3))]
async fn fails(_: u64) -> Result<(), String> {
    Err("no".into())
}

#[tokio::test]
async fn each_retry_is_a_child_of_the_same_publisher() {
    let broker = TestBroker::with([fails::subscriber()]);
    let (published, here) = request(broker.publish("chain: fails", &7)).await;
    published.unwrap();
    // The clock is moved from within another trace, which is none of theirs.
    request(broker.run_until_idle()).await;
    let runs = named(here.trace_id(), "process chain: fails");
    assert_eq!(runs.len(), 3);
    assert!(runs.iter().all(|run| publisher_of(run) == here.span_id()));
    assert!(runs.iter().all(|run| run.parent_span_id == runs[0].parent_span_id));
    let mut ids: Vec<_> = runs.iter().map(|run| run.span_context.span_id().to_bytes()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

#[subscriber("chain: alone", publish = "chain: next")]
async fn alone(n: u64) -> u64 {
    tracing::info!("chain: alone runs");
    n
}

#[tokio::test]
async fn outside_of_spans_a_trace_begins_with_the_publish() {
    LazyLock::force(&ENDED);
    let broker = TestBroker::with([alone::subscriber()]);
    broker.publish("chain: alone", &7).await.unwrap();
    broker.publish("chain: nobody", &7).await.unwrap();
    let run = telling("chain: alone runs");
    assert_eq!(publisher_of(&run), SpanId::INVALID, "a trace begins with it");
    let publish = producer(run.span_context.trace_id(), run.parent_span_id);
    assert_eq!(publish.name, "publish chain: alone");
    for row in broker.rows() {
        let parent = published_in(&row).unwrap();
        if row.queue == "chain: next" {
            assert_eq!(parent, traceparent(&run.span_context));
        } else {
            let none = SpanId::INVALID.to_string();
            assert!(
                parent.contains(&none)
                    && !parent.contains(&publish.span_context.trace_id().to_string())
            );
        }
    }
}
