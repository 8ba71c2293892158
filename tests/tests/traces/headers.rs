//! What stands in the headers: flags, states, the publisher's own, and garbage.

use opentelemetry::Context;
use opentelemetry::trace::{FutureExt, SpanId, TraceFlags, TraceState, Tracer};
use outbox::testing::{Ending, TestBroker};
use outbox::{Outgoing, Subscriber, subscriber};

use super::*;

#[subscriber("headers: relay", publish = "headers: next")]
async fn relay(n: u64) -> u64 {
    n
}

/// What comes of a message: the one that the handler returned.
async fn relayed(message: Outgoing) -> Row {
    LazyLock::force(&ENDED);
    let broker = TestBroker::with([relay::subscriber()]);
    broker.publish_with(message).await.unwrap();
    let mut rows = broker.rows();
    assert_eq!((rows.len(), &*rows[0].queue), (1, "headers: next"));
    rows.remove(0)
}

#[tokio::test]
async fn what_nobody_samples_stays_unsampled() {
    let unsampled = "1af7651916cd43dd8448eb211c80319c";
    let message = foreign("headers: relay", &format!("00-{unsampled}-b7ad6b7169203331-00"));
    let parent = header(&relayed(message).await, "traceparent").unwrap();
    assert!(parent.starts_with(&format!("00-{unsampled}-")) && parent.ends_with("-00"), "{parent}");
    assert!(!parent.contains("b7ad6b7169203331"), "it is the child of the handler");
    assert!(spans(trace(unsampled)).is_empty());
}

#[tokio::test]
async fn a_trace_keeps_its_state() {
    let sampled = "2af7651916cd43dd8448eb211c80319c";
    let message = foreign("headers: relay", &format!("00-{sampled}-b7ad6b7169203331-01"));
    let next = relayed(message.header("tracestate", "vendor=1,other=2")).await;
    let run = only(trace(sampled), "process headers: relay");
    assert_eq!(run.parent_span_id, SpanId::from_hex("b7ad6b7169203331").unwrap());
    assert_eq!(published_in(&next), Some(traceparent(&run.span_context)));
    assert_eq!(header(&next, "tracestate").as_deref(), Some("vendor=1,other=2"));
}

#[tokio::test]
async fn a_state_that_cannot_be_read_is_dropped_and_the_trace_goes_on() {
    let sampled = "3af7651916cd43dd8448eb211c80319c";
    let message = foreign("headers: relay", &format!("00-{sampled}-b7ad6b7169203331-01"));
    let next = relayed(message.header("tracestate", "no state \u{1f9ea}")).await;
    let run = only(trace(sampled), "process headers: relay");
    assert_eq!(published_in(&next), Some(traceparent(&run.span_context)));
    assert_eq!(header(&next, "tracestate"), None);
}

#[tokio::test]
async fn headers_of_the_publisher_stay() {
    let own = format!("00-{TRACE}-b7ad6b7169203331-01");
    let state = TraceState::from_key_value([("theirs", "1")]).unwrap();
    let (trace, span) = (TraceId::from(7), SpanId::from(7));
    let here = SpanContext::new(trace, span, TraceFlags::SAMPLED, true, state);
    let broker = TestBroker::with([relay::subscriber()]);
    let publishing = async {
        broker.publish_with(foreign("elsewhere", &own)).await.unwrap();
        let state = Outgoing::new("elsewhere", &7).header("tracestate", "mine=1");
        broker.publish_with(state).await.unwrap();
        broker.publish("elsewhere", &7).await.unwrap();
    };
    publishing.with_context(Context::new().with_remote_span_context(here.clone())).await;
    let rows = broker.rows();
    let state = |row| header(row, "tracestate");
    assert_eq!((header(&rows[0], "traceparent"), state(&rows[0])), (Some(own), None));
    for (row, theirs) in rows[1..].iter().zip(["mine=1", "theirs=1"]) {
        assert_eq!(published_in(row), Some(traceparent(&here)));
        assert_eq!(state(row).as_deref(), Some(theirs));
    }
    assert_eq!(rows.len(), 3);
}

#[tokio::test]
async fn a_traceparent_that_is_none_begins_a_new_trace_and_is_no_error() {
    let wrong = [
        String::new(),
        "garbage".into(),
        "-".repeat(100_000),
        "\u{1f9ea}".repeat(14),
        format!("ff-{TRACE}-b7ad6b7169203331-01"),
        format!("00-{}-b7ad6b7169203331-01", TRACE.to_uppercase()),
        format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
        format!("00-{TRACE}-{}-01", "0".repeat(16)),
        format!("00-{TRACE}-b7ad6b7169203331"),
        format!("00-{TRACE}-b7ad6b7169203331-1"),
        format!("00-{TRACE}-b7ad6b7169203331-01-more"),
        format!("00-{TRACE}-b7ad6b7169203331-+1"),
    ];
    let messages = wrong.iter().map(|wrong| foreign("headers: wrong", wrong));
    let number = Outgoing::new("headers: wrong", &7).header("traceparent", 7);
    let subscriber =
        Subscriber::new("wrong", "headers: wrong", |ctx: outbox::Context| async move {
            tracing::info!(number = ctx.id(), "headers: wrong runs");
        });
    let broker = TestBroker::with([subscriber]);
    // Also where the handler runs in the task, and so in the span, that publishes.
    request(broker.publish_batch(messages.chain([number]))).await.0.unwrap();
    let calls = broker.calls("wrong");
    assert_eq!(calls.len(), wrong.len() + 1);
    assert!(calls.iter().all(|call| call.ending == Ending::Acked));
    let mut runs = ENDED.get_finished_spans().unwrap();
    runs.retain(|span| span.name == "process headers: wrong");
    assert_eq!(runs.len(), calls.len());
    for run in runs {
        assert_eq!(run.parent_span_id, SpanId::INVALID);
        assert_ne!(run.span_context.trace_id(), trace(TRACE));
    }
}

#[tokio::test]
async fn a_later_version_may_say_more() {
    let later = "4af7651916cd43dd8448eb211c80319c";
    let said = format!("01-{later}-b7ad6b7169203331-01-more");
    let next = relayed(foreign("headers: relay", &said)).await;
    assert!(header(&next, "traceparent").unwrap().starts_with(&format!("00-{later}-")));
}

/// As those do who use no `tracing`.
#[tokio::test]
async fn a_span_of_the_tracer_s_own_counts_too() {
    let provider = opentelemetry_sdk::trace::SdkTracerProvider::builder().build();
    let span = provider.tracer("tests").start("by hand");
    let here = Context::new().with_span(span);
    let broker = TestBroker::with([relay::subscriber()]);
    let publishing = broker.publish("elsewhere", &7).with_context(here.clone());
    publishing.await.unwrap();
    let place = traceparent(here.span().span_context());
    assert_eq!(published_in(&broker.rows()[0]), Some(place));
}
