//! Where a message comes from: the publishes that led to it, the work that it
//! belongs to, the trace of the request; and messages that must not come late.

use std::sync::Mutex;
use std::time::Duration;

use opentelemetry::trace::{SpanId, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use outbox::Outgoing;
use outbox::prelude::*;
use outbox::testing::TestBroker;
use tracing::{Instrument, info_span};
use tracing_subscriber::prelude::*;

/// Names ids by the order in which they were seen: A, B, C.
fn letters(ids: impl IntoIterator<Item = impl ToString>) -> String {
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut seen = SEEN.lock().unwrap();
    let mut letter = |id: String| {
        let known = seen.iter().position(|one| *one == id);
        seen.extend(known.is_none().then_some(id));
        ('A'..='Z').nth(known.unwrap_or(seen.len() - 1)).unwrap_or('?')
    };
    ids.into_iter().map(|id| letter(id.to_string())).collect()
}

fn tell(ctx: &Context) {
    let (ids, work) = (letters(ctx.tracking_ids()), ctx.correlation_id());
    println!("{}: ids {ids}, correlation {work}", ctx.queue());
}

/// What a handler publishes inherits the ids, the correlation id and the trace, with one id more.
#[subscriber("orders", publish = "invoices")]
async fn bill(order: i64, ctx: Context, publisher: Publisher) -> anyhow::Result<i64> {
    tell(&ctx);
    let own = Outgoing::new("audit", &order).correlation_id("audit-1"); // an id of its own stays
    publisher.collect(own)?;
    Ok(order)
}

#[subscriber(["invoices", "audit"])]
async fn listen(_: i64, ctx: Context) {
    tell(&ctx);
}

/// Tried until its time is over. Without `expires_in` it would be tried for ever.
#[subscriber("offers", retry = Constant("10s"))]
async fn offer(what: String) -> Result<(), String> {
    Err(format!("nobody answers to {what}"))
}

fn tree(spans: &[SpanData], parent: SpanId, depth: usize) {
    for span in spans.iter().filter(|span| span.parent_span_id == parent) {
        println!("{:depth$}{}", "", span.name);
        tree(spans, span.span_context.span_id(), depth + 2);
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let ended = InMemorySpanExporter::default(); // yours sends them to a collector
    let tracer = SdkTracerProvider::builder().with_simple_exporter(ended.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(tracer.tracer("shop"));
    tracing_subscriber::registry().with(layer).init();
    let broker = TestBroker::new();
    // Everything published in here shares a first id, as one request does.
    let request = outbox::tracking(async {
        println!("request: ids {}", letters(outbox::tracking_ids()));
        broker.publish_with(Outgoing::new("orders", &1).correlation_id("web-7")).await?;
        broker.publish_with(Outgoing::new("audit", &1).correlation_id("web-7")).await
    });
    request.instrument(info_span!("request")).await?;
    let offer = Outgoing::new("offers", "0.99").expires_in(Duration::from_secs(15));
    broker.publish_with(offer).await?;
    broker.run_until_idle().await;
    println!("offers: {}", broker.dlq_rows()[0].failure_reason);
    tree(&ended.get_finished_spans()?, SpanId::INVALID, 0);
    Ok(())
}
