//! What goes wrong is counted: how often, and for whom.

use std::sync::LazyLock;
use std::time::Duration;

use outbox::retry::Constant;
use outbox::telemetry::Event;
use outbox::{Context, Outgoing, Subscriber};
use outbox_tests::backend::unique;
use outbox_tests::db::Db;
use outbox_tests::kept::Kept;
use outbox_tests::probe::{gated, with_result};
use outbox_tests::wait::eventually;
use outbox_tests::{on_both, on_postgres};
use sqlx::Executor;

use super::{Counts, EXPORTER, counts, scrape};

on_both!(
    results_on_stolen_leases_are_counted_by_what_was_to_be_written,
    a_drain_that_is_cut_off_is_counted_with_the_handlers_that_it_drops,
    a_row_that_waited_too_long_is_counted_when_it_is_given_back,
    leases_that_cannot_be_extended_are_counted_for_each_queue_of_a_subscriber,
);

on_postgres!(leases_of_locked_rows_are_counted_and_no_others);

const HOUR: Duration = Duration::from_secs(3600);
const WHOSE: [&str; 2] = ["queue", "subscriber"];
const FAILURES: &str = "outbox_lease_extension_failures_total";

/// What the queues of a test begin with.
fn stem() -> String {
    LazyLock::force(&EXPORTER);
    format!("{}.", unique("faults"))
}

async fn send(db: &Db, queue: &str, rows: usize) {
    db.send_all((0..rows).map(|n| Outgoing::new(queue, &n))).await;
}

async fn results_on_stolen_leases_are_counted_by_what_was_to_be_written(db: &Db) {
    let stem = &*stem();
    let [acked, retried] = ["acked", "retried"].map(|queue| format!("{stem}{queue}"));
    let (acks, to_ack) = gated("acks", &acked);
    let (retries, to_retry) = with_result("retries", &retried, |_| Err("no".into()));
    let retries = retries.retry(Constant::new(HOUR)).max_workers(2);
    let running = db.app().only([acks, retries]).start().await.unwrap();
    send(db, &acked, 1).await;
    send(db, &retried, 2).await;
    to_ack.start().await;
    to_retry.starts(2).await;
    let token = if db.is_postgres() { "gen_random_uuid()" } else { "randomblob(16)" };
    db.exec(format!("UPDATE outbox SET acquired_token = {token}")).await;
    to_ack.let_end(1);
    to_retry.let_end(2);
    let lost = || scrape().by("outbox_lease_lost_total", &["queue", "subscriber", "phase"], stem);
    eventually("all are lost", async || lost().values().sum::<i64>() >= 3).await;
    running.stop().await.unwrap();
    assert_eq!(lost(), counts(&[("acked acks terminal", 1), ("retried retries retry", 2)]));
    let ended = scrape().by(
        "outbox_process_duration_seconds_count",
        &["queue", "subscriber", "outcome"],
        stem,
    );
    assert_eq!(ended, counts(&[("acked acks lease_lost", 1), ("retried retries lease_lost", 2)]));
    for nothing in
        ["outbox_acked_total", "outbox_retried_total", "outbox_retry_delay_seconds_count"]
    {
        assert_eq!(scrape().total(nothing, stem), 0, "{nothing}");
    }
}

async fn a_drain_that_is_cut_off_is_counted_with_the_handlers_that_it_drops(db: &Db) {
    let stem = &*stem();
    let queue = format!("{stem}slow");
    let (slow, probe) = gated("runs", &queue);
    let (idle, _) = gated("idle", &format!("{stem}idle"));
    let app = db.app().only([slow.max_workers(3), idle]);
    let running = app.drain_timeout(Duration::from_millis(10)).start().await.unwrap();
    send(db, &queue, 3).await;
    probe.starts(3).await;
    running.stop().await.unwrap_err();
    let told = scrape();
    let of = |name: &str| told.by(name, &WHOSE, stem);
    assert_eq!(of("outbox_drain_timeout_total"), counts(&[("slow runs", 1)]));
    assert_eq!(of("outbox_dispatch_abandoned_total"), counts(&[("slow runs", 3)]));
    assert_eq!(of("outbox_in_process"), Counts::new());
}

async fn a_row_that_waited_too_long_is_counted_when_it_is_given_back(db: &Db) {
    let stem = &*stem();
    let queue = format!("{stem}waits");
    let (subscriber, probe) = gated("it", &queue);
    let ttl = Duration::from_secs(6);
    let subscriber = subscriber.max_workers(1).lease_ttl(ttl).min_poll(HOUR).max_poll(HOUR);
    let running = db.app().only([subscriber]).start().await.unwrap();
    send(db, &queue, 2).await;
    let first = probe.start().await;
    // Too little is left to start the other one with.
    tokio::time::sleep_until(first.lease_deadline - ttl / 4).await;
    probe.let_end(2);
    db.drained().await;
    running.stop().await.unwrap();
    let waited = scrape().by("outbox_waited_too_long_total", &WHOSE, stem);
    assert_eq!(waited, counts(&[("waits it", 1)]));
}

/// How many leases events tell of, as the metric has them.
fn failures(kept: &Kept, stem: &str) -> Counts {
    let mut found = Counts::new();
    for event in kept.events() {
        if let Event::LeaseExtensionFailed { queue, subscriber, leases, .. } = event {
            let queue = queue.strip_prefix(stem).unwrap().to_owned();
            *found.entry(vec![queue, subscriber.to_owned()]).or_default() +=
                i64::try_from(leases).unwrap();
        }
    }
    found
}

/// A subscriber whose handlers have no end.
fn endless(name: &'static str, stem: &str, queues: &[&str]) -> Subscriber {
    let queues: Vec<_> = queues.iter().map(|queue| format!("{stem}{queue}")).collect();
    let subscriber = Subscriber::new(name, queues, |_: Context| std::future::pending::<()>());
    subscriber.max_workers(5).lease_ttl(Duration::from_secs(15))
}

/// One statement is for all of them, and fails.
async fn leases_that_cannot_be_extended_are_counted_for_each_queue_of_a_subscriber(db: &Db) {
    let (stem, kept) = (&*stem(), Kept::default());
    let several = endless("several", stem, &["first", "second"]);
    let app = db.app().only([several, endless("single", stem, &["third"])]);
    let app = app.drain_timeout(Duration::from_millis(10)).recorder(kept.recorder());
    let running = app.start().await.unwrap();
    for (queue, rows) in [("first", 2), ("second", 1), ("third", 3)] {
        send(db, &format!("{stem}{queue}"), rows).await;
    }
    eventually("all run", async || scrape().total("outbox_in_process", stem) == 6).await;
    db.exec("ALTER TABLE outbox RENAME COLUMN acquired_at TO since").await;
    let told = || scrape().by(FAILURES, &WHOSE, stem);
    let all = counts(&[("first several", 2), ("second several", 1), ("third single", 3)]);
    eventually("all of them are told of", async || {
        let told = told();
        all.iter().all(|(whose, rows)| told.get(whose).is_some_and(|told| told >= rows))
    })
    .await;
    db.exec("ALTER TABLE outbox RENAME COLUMN since TO acquired_at").await;
    running.stop().await.unwrap_err();
    assert_eq!(told().len(), 3, "{:?}", told());
    eventually("as the events tell", async || failures(&kept, stem) == told()).await;
}

async fn leases_of_locked_rows_are_counted_and_no_others(db: &Db) {
    let (stem, kept) = (&*stem(), Kept::default());
    let app = db
        .app()
        .only([endless("held", stem, &["held", "free"]), endless("other", stem, &["other"])]);
    let app = app.drain_timeout(Duration::from_millis(10)).recorder(kept.recorder());
    let running = app.start().await.unwrap();
    for (queue, rows) in [("held", 2), ("free", 1), ("other", 1)] {
        send(db, &format!("{stem}{queue}"), rows).await;
    }
    eventually("all run", async || scrape().total("outbox_in_process", stem) == 4).await;
    let mut locks = db.pg().begin().await.unwrap();
    let held = format!("SELECT FROM outbox WHERE queue = '{stem}held' FOR UPDATE");
    locks.execute(sqlx::AssertSqlSafe(held)).await.unwrap();
    let told = || scrape().by(FAILURES, &WHOSE, stem);
    eventually("both are told of", async || told().values().sum::<i64>() >= 2).await;
    locks.rollback().await.unwrap();
    running.stop().await.unwrap_err();
    let told = told();
    assert_eq!(told.keys().collect::<Vec<_>>(), [&["held", "held"]]);
    eventually("as the events tell", async || failures(&kept, stem) == told).await;
}
