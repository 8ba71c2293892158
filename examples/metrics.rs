//! Metrics for Prometheus, probes for the platform, and a sink of your own, on one port.

mod support;

use std::time::Duration;

use axum::{Router, routing::get};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use outbox::prelude::*;
use outbox::telemetry::Event;
use outbox::{App, Outgoing};
use support::{Scratch, no_message_left};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[subscriber("orders", retry = Constant("10ms", max_attempts = 2))]
async fn pack(order: i64) -> Result<(), String> {
    if order == 3 { Err("out of stock".into()) } else { Ok(()) }
}

/// What Prometheus and the platform do.
async fn fetch(port: u16, route: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET {route} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Before the app starts; `with_http_listener` serves it on a port of its own.
    let (seconds, buckets) = (Matcher::Suffix("_seconds".into()), [0.005, 0.05, 0.5, 5.0]);
    let exporter =
        PrometheusBuilder::new().set_buckets_for_metric(seconds, &buckets)?.install_recorder()?;

    // Samples are summed up when somebody asks for them, or here: nobody may ask for hours.
    let upkeep = exporter.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    });
    let scratch = Scratch::new()?;
    let pool = scratch.open().await?;
    let audit = |event: &Event| {
        if let Event::DeadLetterWritten { delivery, reason, .. } = event {
            println!("sink: row {} of {} is dead, {reason}", delivery.row_id, delivery.queue);
        }
    };
    let app = App::sqlite(pool.clone()).dlq("outbox_dlq").recorder(audit);
    let app = app.queue_gauges(Duration::from_secs(1)); // a minute is often enough

    let scrape = get(async move || exporter.render());
    let routes =
        Router::new().route("/metrics", scrape).merge(outbox::health::router(app.health()));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move { axum::serve(listener, routes).await });

    let status = |answer: String| answer.lines().next().unwrap_or_default().to_owned();
    println!("before the start: {}", status(fetch(port, "/ready").await?));
    let running = app.start().await?;
    println!("while it runs: {}", status(fetch(port, "/ready").await?));
    let mut tx = outbox::sqlite::begin(&pool).await?;
    app.publisher().publish_batch(&mut tx, (1..=4).map(|n| Outgoing::new("orders", &n))).await?;
    tx.commit().await?;
    no_message_left(&pool).await;
    running.stop().await?;
    println!("after the stop: {}", status(fetch(port, "/ready").await?));

    let metrics = fetch(port, "/metrics").await?;
    let mut told: Vec<_> = metrics.lines().filter(|line| line.contains("_total{")).collect();
    told.retain(|line| !line.ends_with(" 0") && !line.contains("fetches"));
    told.sort_unstable();
    told.iter().for_each(|line| println!("{line}"));
    Ok(())
}
