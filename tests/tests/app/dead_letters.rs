//! Messages that failed for good are kept, whatever happens to the table for
//! them, or deleted where nobody asked for one.

use outbox::{AckPolicy, TableNames};
use outbox_tests::backend::unique;
use outbox_tests::db::Db;
use outbox_tests::probe::{free, gated, with_result};
use outbox_tests::wait::eventually;
use outbox_tests::{capture, on_both};

use super::*;

on_both!(
    a_dead_letter_holds_the_message_as_it_was_published,
    a_dropped_table_costs_no_message_and_holds_up_no_other,
    without_a_table_a_failed_message_is_deleted_and_one_warning_said_so,
    only_subscribers_that_can_fail_for_good_are_warned_of,
);

fn fails(name: &'static str, queue: &str) -> (outbox::Subscriber, outbox_tests::probe::Probe) {
    let (subscriber, probe) = with_result(name, queue, |_| Err("it is broken".into()));
    probe.let_end(1000);
    (subscriber.retry(outbox::retry::NoRetry), probe)
}

async fn a_dead_letter_holds_the_message_as_it_was_published(db: &Db) {
    let columns = "id || ' ' || queue || ' ' || CAST(headers AS text) || ' ' || \
        CAST(created_at AS text) || ' ' || timer_id";
    let message = outbox::Outgoing::raw("q", &b"\x00\xff bytes"[..])
        .header("tenant", "acme \"é\"")
        .correlation_id("c-1")
        .timer_id("t-1");
    db.send(message).await;
    let before = db.texts(format!("SELECT {columns} FROM outbox")).await;
    let running = db.app().only([fails("it", "q").0]).start().await.unwrap();
    db.drained().await;
    let columns = columns.replacen("id", "original_id", 1);
    assert_eq!(db.texts(format!("SELECT {columns} FROM outbox_dlq")).await, before);
    let kept = "SELECT failure_reason || ' ' || status || ' ' || deliveries_count || ' ' || \
        last_exception FROM outbox_dlq";
    let kept = db.texts(kept).await;
    assert!(kept[0].starts_with("retry_terminal failed 1 "), "{kept:?}");
    assert!(kept[0].contains("it is broken"), "{kept:?}");
    let bytes = if db.is_postgres() { "'\\x00ff206279746573'" } else { "x'00ff206279746573'" };
    let same = format!("SELECT count(*) FROM outbox_dlq WHERE payload = {bytes}");
    assert_eq!(db.int(same).await, 1);
    running.stop().await.unwrap();
}

async fn a_dropped_table_costs_no_message_and_holds_up_no_other(db: &Db) {
    let (broken, probe) = fails("broken", "broken");
    let (fine, other) = free("fine", "fine");
    // The row comes back when its lease is over.
    let broken = broken.lease_ttl(SECOND).min_poll(SECOND / 10).max_poll(SECOND / 10);
    let running = db.app().only([broken, fine]).start().await.unwrap();
    db.exec("ALTER TABLE outbox_dlq RENAME TO away").await;
    db.exec("DROP TABLE away").await;
    for n in 0..5 {
        db.publish("broken", n).await;
    }
    probe.starts(5).await;
    for n in 0..20 {
        db.publish("fine", n).await;
    }
    other.starts(20).await;
    eventually("the others are done", async || db.rows().await == 5).await;
    probe.starts(5).await;
    assert_eq!(db.rows().await, 5, "growth, never loss");
    running.ping().await.unwrap();
    db.migrate().await;
    db.drained().await;
    assert_eq!(db.letters().await, 5);
    running.stop().await.unwrap();
}

/// Lines of a start that say where failed messages go.
fn warnings(subscriber: &str) -> Vec<capture::Line> {
    let mut lines = capture::lines();
    lines.retain(|line| {
        let text = line.text();
        text.contains("no dead-letter table is configured") && text.contains(subscriber)
    });
    lines
}

async fn without_a_table_a_failed_message_is_deleted_and_one_warning_said_so(db: &Db) {
    capture::start();
    let name: &'static str = unique("nobody_keeps").leak();
    let other: &'static str = unique("nor_this").leak();
    let (subscriber, probe) = fails(name, "q");
    let all = [subscriber, free(other, "other").0];
    let app = db.named(TableNames::default()).app().only(all);
    let running = app.start().await.unwrap();
    for n in 0..3 {
        db.publish("q", n).await;
    }
    probe.starts(3).await;
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!(db.letters().await, 0);
    let warnings = warnings(name);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0].level, tracing::Level::WARN);
    assert!(warnings[0].get("subscribers").unwrap().contains(other), "{warnings:?}");
}

async fn only_subscribers_that_can_fail_for_good_are_warned_of(db: &Db) {
    capture::start();
    let name: &'static str = unique("keeps_nothing").leak();
    let first = gated(name, "q").0.ack(AckPolicy::AckFirst);
    let app = db.named(TableNames::default()).app().only([first]);
    app.start().await.unwrap().stop().await.unwrap();
    let kept: &'static str = unique("is_kept").leak();
    db.app().only([gated(kept, "q").0]).start().await.unwrap().stop().await.unwrap();
    assert_eq!((warnings(name).len(), warnings(kept).len()), (0, 0));
}
