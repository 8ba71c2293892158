//! Where a handler publishes outside of the span of its run: with such spans switched off, and in
//! a task of its own.

use outbox::testing::TestBroker;
use outbox::{Context, Outgoing, Publisher, Subscriber, subscriber};
use outbox_tests::db::{Db, Pool};
use outbox_tests::on_both;
use outbox_tests::wait::eventually;
use tracing::instrument::WithSubscriber;
use tracing_subscriber::filter::{LevelFilter, Targets};

use super::*;

on_both!(a_task_of_a_handler_goes_on_in_the_trace_of_the_message,);

const PARENT: &str = "b7ad6b7169203331";

/// A trace of one test alone.
fn drawn() -> String {
    format!("{:032x}", fastrand::u128(1..))
}

#[track_caller]
fn goes_on(span: &SpanData, trace_of: &str) {
    assert_eq!(span.span_context.trace_id(), trace(trace_of), "{}", span.name);
    assert_eq!(span.parent_span_id, SpanId::from_hex(PARENT).unwrap(), "{}", span.name);
    assert!(span.parent_span_is_remote);
}

#[subscriber("outside: off", publish = "outside: returned")]
async fn off(n: u64, publisher: Publisher) -> u64 {
    publisher.collect(Outgoing::new("outside: collected", &n)).unwrap();
    n
}

#[tokio::test]
async fn without_spans_of_runs_a_trace_goes_on_from_message_to_message() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("tests"));
    let runs = Targets::new().with_default(LevelFilter::INFO);
    let runs = runs.with_target("outbox::handler", LevelFilter::OFF);
    let (broker, drawn) = (TestBroker::with([off::subscriber()]), drawn());
    let message = foreign("outside: off", &format!("00-{drawn}-{PARENT}-01"));
    let publishing = broker.publish_with(message.header("tracestate", "vendor=1"));
    publishing
        .with_subscriber(tracing_subscriber::registry().with(runs).with(layer))
        .await
        .unwrap();
    let (rows, spans) = (broker.rows(), exporter.get_finished_spans().unwrap());
    assert!(spans.iter().all(|span| !span.name.starts_with("process")), "{spans:?}");
    assert_eq!(rows.len(), 2);
    for row in rows {
        let is_its = |span: &&SpanData| span.name == format!("create {}", row.queue);
        let span = spans.iter().find(is_its).unwrap();
        goes_on(span, &drawn);
        assert_eq!(header(&row, "traceparent"), Some(traceparent(&span.span_context)));
        assert_eq!(header(&row, "tracestate").as_deref(), Some("vendor=1"));
    }
}

/// In each way there is.
async fn publish(db: Pool, publisher: Publisher) {
    let next = || Outgoing::new("outside: next", &7);
    match db {
        Pool::Postgres(pool) => {
            let mut tx = pool.begin().await.unwrap();
            publisher.send(&mut tx, next()).await.unwrap();
            publisher.publish_batch(&mut tx, [next(), next()]).await.unwrap();
            tx.commit().await.unwrap();
        }
        Pool::Sqlite(pool) => {
            let mut tx = outbox::sqlite::begin(&pool).await.unwrap();
            publisher.send(&mut tx, next()).await.unwrap();
            publisher.publish_batch(&mut tx, [next(), next()]).await.unwrap();
            tx.commit().await.unwrap();
        }
    }
    publisher.collect(next()).unwrap();
}

async fn a_task_of_a_handler_goes_on_in_the_trace_of_the_message(db: &Db) {
    LazyLock::force(&ENDED);
    let pool = db.pool.clone();
    let starts = Subscriber::new("starts", "outside: starts", move |ctx: Context| {
        let task = tokio::spawn(publish(pool.clone(), ctx.publisher()));
        async move { task.await.unwrap() }
    });
    let running = db.app().only([starts]).start().await.unwrap();
    let drawn = drawn();
    db.send_all([foreign("outside: starts", &format!("00-{drawn}-{PARENT}-01"))]).await;
    eventually("it is acked", async || {
        db.int("SELECT count(*) FROM outbox WHERE queue = 'outside: next'").await == 4
    })
    .await;
    running.stop().await.unwrap();
    let published = named(trace(&drawn), "publish outside: next");
    assert_eq!(published.len(), 2, "one by one, and as a batch: {published:?}");
    published.iter().for_each(|span| goes_on(span, &drawn));
    goes_on(&only(trace(&drawn), "create outside: next"), &drawn);
}
