//! What is exported is what is promised, and there are no series without end.

use std::collections::BTreeSet;

use outbox::telemetry::{METRICS, MetricKind, name_queues};
use outbox::{Outgoing, Subscriber};
use outbox_tests::backend::unique;
use outbox_tests::db::Db;
use outbox_tests::on_both;

use super::{EXPORTER, scrape};

on_both!(
    queues_that_nobody_named_are_one_series,
    what_is_exported_is_what_is_promised,
    a_publish_that_fails_is_counted_with_its_kind,
);

async fn queues_that_nobody_named_are_one_series(db: &Db) {
    std::sync::LazyLock::force(&EXPORTER);
    let (stem, named) = (unique("made"), unique("named"));
    name_queues([&named]);
    let before = scrape().by("outbox_published_messages_total", &["queue"], "other");
    let before: i64 = before.values().sum();
    for n in 0..300 {
        db.publish(&format!("{stem}-{n}"), n).await;
    }
    db.publish(&named, 7).await;
    let told = scrape();
    let queues: BTreeSet<_> =
        told.series.iter().filter_map(|(_, labels, _)| labels.get("queue")).collect();
    assert!(!queues.iter().any(|queue| queue.starts_with(&stem)), "{queues:?}");
    let now: i64 = told.by("outbox_published_messages_total", &["queue"], "other").values().sum();
    assert!(now >= before + 300, "{before} {now}");
    assert_eq!(told.total("outbox_published_messages_total", &named), 1);
}

/// Names, kinds, texts and labels; and every counter of a subscriber is there from its
/// start, so that a first event is a change.
async fn what_is_exported_is_what_is_promised(db: &Db) {
    std::sync::LazyLock::force(&EXPORTER);
    let queue = unique("promised");
    let fails = Subscriber::new("it", &*queue, |_| async { Err::<(), _>("no") });
    let fails = fails.retry(outbox::retry::NoRetry);
    let running = db
        .app()
        .only([fails])
        .queue_gauges(std::time::Duration::from_secs(1))
        .start()
        .await
        .unwrap();
    db.publish(&queue, 7).await;
    db.drained().await;
    outbox_tests::wait::eventually("the gauges are there", async || {
        !scrape().by("outbox_dead_letters", &["queue"], &queue).is_empty()
    })
    .await;
    running.stop().await.unwrap();
    let told = scrape();
    for (name, labels, _) in told.series.iter().filter(|(name, ..)| name.starts_with("outbox_")) {
        let of = |end: &str| name.strip_suffix(end).filter(|name| told.kinds[*name] == "histogram");
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| of(end)).unwrap_or(name);
        let metric = METRICS.iter().find(|metric| metric.name == base);
        let metric = metric.unwrap_or_else(|| panic!("{name} is promised nowhere"));
        let mut names: BTreeSet<_> = labels.keys().map(String::as_str).collect();
        names.remove("le");
        assert_eq!(names, metric.labels.iter().copied().collect(), "{name}");
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            _ => "histogram",
        };
        assert_eq!((&*told.kinds[base], &*told.help[base]), (kind, metric.help));
    }
    for metric in METRICS {
        // There is one once a publish failed, or an event was dropped; and where the tables
        // are in a server that notifies.
        let rare = metric.name.contains("publish_exceptions")
            || metric.name.contains("notify_queue") && !db.is_postgres();
        let there = told.kinds.contains_key(metric.name);
        assert!(there || rare, "{} is not exported", metric.name);
    }
}

async fn a_publish_that_fails_is_counted_with_its_kind(db: &Db) {
    std::sync::LazyLock::force(&EXPORTER);
    let queue = unique("refused");
    name_queues([&queue]);
    let publisher = db.app().publisher();
    let message = || Outgoing::new(&queue, &1).timer_id("");
    match &db.pool {
        outbox_tests::db::Pool::Postgres(pool) => {
            publisher.send(&mut pool.begin().await.unwrap(), message()).await.unwrap_err();
        }
        outbox_tests::db::Pool::Sqlite(pool) => {
            publisher.send(&mut pool.begin().await.unwrap(), message()).await.unwrap_err();
        }
    }
    let told = scrape();
    let failed = told.by("outbox_publish_exceptions_total", &["exception_type"], &queue);
    assert_eq!(failed.into_iter().collect::<Vec<_>>(), [(vec!["EmptyName".to_owned()], 1)]);
    let calls = told.by("outbox_publishes_total", &["status"], &queue);
    assert_eq!(calls.into_iter().collect::<Vec<_>>(), [(vec!["error".to_owned()], 1)]);
}
