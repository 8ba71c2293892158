//! The trace of a request goes with its messages, through the handlers and what
//! they publish, as a tracer of OpenTelemetry sees it.

mod batches;
mod chain;
mod databases;
mod headers;
mod outside;
mod producers;
mod spans;

use std::future::Future;
use std::sync::LazyLock;

use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, TraceContextExt, TraceId, TracerProvider,
};
use opentelemetry::{Key, Value};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use outbox::{Outgoing, Row};
use tracing::{Instrument, Span, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;

/// The spans of all tests, which tell them apart by their traces.
static ENDED: LazyLock<InMemorySpanExporter> = LazyLock::new(|| {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("tests"));
    let all = tracing_subscriber::registry().with(layer);
    tracing::subscriber::set_global_default(all).unwrap();
    exporter
});

/// Runs a future in a span, which begins a trace, and returns its place.
async fn request<T>(future: impl Future<Output = T>) -> (T, SpanContext) {
    LazyLock::force(&ENDED);
    let span = info_span!("request");
    let place = place(&span);
    (future.instrument(span).await, place)
}

fn place(span: &Span) -> SpanContext {
    span.context().span().span_context().clone()
}

/// Those of a trace that have ended, in the order of their beginnings.
fn spans(trace: TraceId) -> Vec<SpanData> {
    let mut spans = ENDED.get_finished_spans().unwrap();
    spans.retain(|span| span.span_context.trace_id() == trace);
    spans.sort_by_key(|span| span.start_time);
    spans
}

/// Those of a name.
fn named(trace: TraceId, name: &str) -> Vec<SpanData> {
    spans(trace).into_iter().filter(|span| span.name == name).collect()
}

/// The only one of a name.
#[track_caller]
fn only(trace: TraceId, name: &str) -> SpanData {
    let mut found = named(trace, name);
    assert_eq!(found.len(), 1, "{name}: {:?}", spans(trace));
    found.remove(0)
}

/// One found by what its handler logged: it has no trace that a test could know.
#[track_caller]
fn telling(line: &str) -> SpanData {
    let tells = |span: &SpanData| span.events.iter().any(|event| event.name == line);
    let mut found: Vec<_> = ENDED.get_finished_spans().unwrap();
    found.retain(tells);
    assert_eq!(found.len(), 1, "{line}");
    found.remove(0)
}

fn attribute(span: &SpanData, name: &'static str) -> Option<Value> {
    let mut all = span.attributes.iter();
    all.find(|one| one.key == Key::from_static_str(name)).map(|one| one.value.clone())
}

/// What stands in the header for a place.
fn traceparent(place: &SpanContext) -> String {
    format!("00-{}-{}-{:02x}", place.trace_id(), place.span_id(), place.trace_flags())
}

/// The span that published a message, by its place.
#[track_caller]
fn producer(trace: TraceId, id: SpanId) -> SpanData {
    let mut all = ENDED.get_finished_spans().unwrap();
    all.retain(|span| (span.span_context.trace_id(), span.span_context.span_id()) == (trace, id));
    assert_eq!(all.len(), 1, "the span {id} of {trace}");
    let span = all.remove(0);
    assert_eq!(span.span_kind, SpanKind::Producer, "{}", span.name);
    span
}

/// The span in which the message of a run was published: the parent of that which
/// published it.
#[track_caller]
fn publisher_of(run: &SpanData) -> SpanId {
    assert!(run.parent_span_is_remote);
    producer(run.span_context.trace_id(), run.parent_span_id).parent_span_id
}

/// The same, of what stands in the header of a message.
#[track_caller]
fn published_in(row: &Row) -> Option<String> {
    let header = header(row, "traceparent")?;
    let [version, trace, id, flags] = header.split('-').collect::<Vec<_>>()[..] else {
        panic!("{header}")
    };
    let span = producer(TraceId::from_hex(trace).unwrap(), SpanId::from_hex(id).unwrap());
    Some(format!("{version}-{trace}-{}-{flags}", span.parent_span_id))
}

fn header(row: &Row, name: &str) -> Option<String> {
    row.headers().unwrap().get(name).map(str::to_owned)
}

/// A message as another process would write it.
fn foreign(queue: &str, traceparent: &str) -> Outgoing {
    Outgoing::new(queue, &7).header("traceparent", traceparent)
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn trace(hex: &str) -> TraceId {
    TraceId::from_hex(hex).unwrap()
}
