//! The gauges of queues: what is in the tables, seldom looked at, and only when asked for.

use std::time::Duration;

use outbox::Outgoing;
use outbox_tests::backend::unique;
use outbox_tests::db::Db;
use outbox_tests::probe::{free, gated};
use outbox_tests::wait::eventually;
use outbox_tests::{on_both, on_postgres};

use super::{EXPORTER, scrape};

on_both!(
    the_gauges_tell_what_is_in_the_tables,
    without_a_table_of_dead_letters_the_others_are_told,
    without_the_setting_no_queue_is_looked_into,
    handlers_that_run_are_told_by_their_queue,
);

// What SQLite's store tells of it is tested with the stores: all tests here have one exporter.
on_postgres!(how_full_the_queue_of_notifications_is_is_told);

const SECOND: Duration = Duration::from_secs(1);

fn gauge(queue: &str, name: &str) -> Option<f64> {
    let sums = scrape();
    let mut of = sums.series.iter().filter(|(known, labels, _)| {
        known == name && labels.get("queue").is_some_and(|known| known == queue)
    });
    of.next().map(|(.., value)| *value)
}

async fn the_gauges_tell_what_is_in_the_tables(db: &Db) {
    std::sync::LazyLock::force(&EXPORTER);
    let (busy, paused) = (unique("busy"), unique("paused"));
    let (subscriber, probe) = gated("busy", &busy);
    let (waits, _) = free("waits", &paused);
    db.exec(format!("INSERT INTO outbox_paused (queue) VALUES ('{paused}')")).await;
    db.send_all((0..3).map(|n| Outgoing::new(&busy, &n))).await;
    let later = Outgoing::new(&busy, &1).delay(3600 * SECOND);
    db.send_all([later, Outgoing::new(&paused, &1), Outgoing::new(&paused, &2)]).await;
    let payload = if db.is_postgres() { "'\\x37'::bytea" } else { "x'37'" };
    let created = if db.is_postgres() { "now()" } else { "0" };
    db.exec(format!(
        "INSERT INTO outbox_dlq (original_id, queue, payload, deliveries_count, created_at,
             failure_reason, status)
         VALUES (1, '{busy}', {payload}, 1, {created}, 'rejected', 'failed'),
             (2, '{busy}', {payload}, 1, {created}, 'rejected', 'resolved')"
    ))
    .await;
    let app = db.app().only([subscriber.max_workers(3), waits]);
    let running = app.queue_gauges(SECOND).start().await.unwrap();
    probe.starts(3).await;
    let names = ["backlog", "leased", "due", "oldest_age_seconds", "dead_letters"];
    let told =
        |queue: &str| names.map(|name| gauge(queue, &format!("outbox_{name}")).unwrap_or(-1.0));
    eventually("both queues are told", async || {
        let [backlog, leased, due, _, dead] = told(&paused);
        let waits = [backlog, leased, due, dead] == [2.0, 0.0, 2.0, 0.0];
        waits && told(&busy) == [4.0, 3.0, 0.0, 0.0, 1.0]
    })
    .await;
    let [.., age, _] = told(&paused);
    assert!(age > 0.0 && age < 60.0, "{age}");
    probe.let_end(3);
    eventually("the rest is told", async || told(&busy) == [1.0, 0.0, 0.0, 0.0, 1.0]).await;
    running.stop().await.unwrap();
}

/// It is of no queue.
async fn how_full_the_queue_of_notifications_is_is_told(db: &Db) {
    std::sync::LazyLock::force(&EXPORTER);
    let subscriber = free("it", &unique("told")).0;
    let running = db.app().only([subscriber]).queue_gauges(SECOND).start().await.unwrap();
    let usage = || scrape().alone("outbox_notify_queue_usage");
    eventually("it is told", async || usage().is_some()).await;
    running.stop().await.unwrap();
    let usage = usage().unwrap();
    assert!((0.0..=1.0).contains(&usage), "{usage}");
}

/// Rows pile up then, and somebody is to be told.
async fn without_a_table_of_dead_letters_the_others_are_told(db: &Db) {
    std::sync::LazyLock::force(&EXPORTER);
    let queue = unique("alone");
    let app = db.app().only([gated("it", &queue).0.max_workers(1)]);
    let running = app.queue_gauges(SECOND).start().await.unwrap();
    let backlog = |rows: f64| gauge(&queue, "outbox_backlog") == Some(rows);
    eventually("it is looked at", async || backlog(0.0)).await;
    assert_eq!(gauge(&queue, "outbox_dead_letters"), Some(0.0));
    db.exec("ALTER TABLE outbox_dlq RENAME TO elsewhere").await;
    let later = |n: i64| Outgoing::new(&queue, &n).delay(3600 * SECOND);
    db.send_all((0..3).map(later)).await;
    eventually("they are told", async || backlog(3.0)).await;
    let _ = running.stop().await;
}

async fn without_the_setting_no_queue_is_looked_into(db: &Db) {
    std::sync::LazyLock::force(&EXPORTER);
    let queue = unique("unseen");
    let running = db.app().only([free("it", &queue).0]).start().await.unwrap();
    db.publish(&queue, 7).await;
    db.drained().await;
    let names: Vec<_> = running.health().glance().loops.iter().map(|one| one.name).collect();
    assert!(!names.contains(&"samples"), "{names:?}");
    assert_eq!(gauge(&queue, "outbox_backlog"), None);
    running.stop().await.unwrap();
}

async fn handlers_that_run_are_told_by_their_queue(db: &Db) {
    std::sync::LazyLock::force(&EXPORTER);
    let queue = unique("running");
    let (subscriber, probe) = gated("it", &queue);
    let running = db.app().only([subscriber.max_workers(2)]).start().await.unwrap();
    db.send_all((0..2).map(|n| Outgoing::new(&queue, &n))).await;
    probe.starts(2).await;
    assert_eq!(gauge(&queue, "outbox_in_process"), Some(2.0));
    assert!(scrape().alone("outbox_listener_up").is_some());
    probe.let_end(2);
    db.drained().await;
    eventually("none runs", async || gauge(&queue, "outbox_in_process") == Some(0.0)).await;
    running.stop().await.unwrap();
}
