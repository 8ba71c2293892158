//! The metrics of a run against what triggers saw in the tables.

use std::collections::BTreeMap;

use outbox_tests::backend::unique;
use outbox_tests::db::Db;
use outbox_tests::on_both;

use super::{EXPORTER, scrape, script};

on_both!(the_metrics_of_a_run_without_crashes_are_what_the_tables_saw);

/// One row an event: what, queue, reason.
const TABLE: &str = "CREATE TABLE audit (what text NOT NULL, queue text NOT NULL, reason text)";

/// What a change of a row was, in words of both databases.
const CHANGE: &str = "CASE
    WHEN NEW.acquired_token IS NOT NULL AND NEW.deliveries_count > OLD.deliveries_count THEN 'claimed'
    WHEN OLD.acquired_token IS NULL AND NEW.created_at = OLD.created_at THEN 'kept'
    WHEN OLD.acquired_token IS NULL THEN 'extended'
    WHEN NEW.acquired_token IS NOT NULL THEN 'lease'
    WHEN NEW.attempts_count > OLD.attempts_count THEN 'retried'
    WHEN NEW.deliveries_count < OLD.deliveries_count THEN 'snoozed'
    ELSE 'released' END";

async fn watch(db: &Db) {
    db.exec(TABLE).await;
    let note = |what: &str, queue: &str, reason: &str| {
        format!("INSERT INTO audit (what, queue, reason) VALUES ({what}, {queue}, {reason})")
    };
    for (event, table, statement) in [
        ("INSERT", "outbox", note("'inserted'", "NEW.queue", "NULL")),
        ("UPDATE", "outbox", note(CHANGE, "NEW.queue", "NULL")),
        ("DELETE", "outbox", note("'deleted'", "OLD.queue", "NULL")),
        ("INSERT", "outbox_dlq", note("'letter'", "NEW.queue", "NEW.failure_reason")),
    ] {
        let name = format!("audit_{event}_{table}");
        if db.is_postgres() {
            db.exec(format!(
                "CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN {statement}; RETURN NULL; END $$"
            ))
            .await;
            db.exec(format!(
                "CREATE TRIGGER {name} AFTER {event} ON {table}
                 FOR EACH ROW EXECUTE FUNCTION {name}()"
            ))
            .await;
        } else {
            db.exec(format!(
                "CREATE TRIGGER {name} AFTER {event} ON {table} BEGIN {statement}; END"
            ))
            .await;
        }
    }
}

type Counts = BTreeMap<Vec<String>, i64>;

/// What the triggers saw, by queue and reason.
async fn saw(db: &Db, what: &str, prefix: &str, by_reason: bool) -> Counts {
    let reason = if by_reason { "|| '|' || coalesce(reason, '')" } else { "" };
    let lines = db
        .texts(format!("SELECT queue {reason} FROM audit WHERE what = '{what}' ORDER BY queue"))
        .await;
    let mut counts = Counts::new();
    for line in lines {
        let line = line.strip_prefix(prefix).unwrap().to_owned();
        let key = line.split('|').map(str::to_owned).collect();
        *counts.entry(key).or_default() += 1;
    }
    counts
}

/// The one less the other, queue by queue.
fn less(mut counts: Counts, other: &Counts) -> Counts {
    for (key, count) in other {
        *counts.entry(key[..1].to_vec()).or_default() -= count;
    }
    counts.retain(|_, count| *count != 0);
    counts
}

fn plus(mut counts: Counts, other: Counts) -> Counts {
    for (key, count) in other {
        *counts.entry(key).or_default() += count;
    }
    counts
}

async fn the_metrics_of_a_run_without_crashes_are_what_the_tables_saw(db: &Db) {
    std::sync::LazyLock::force(&EXPORTER);
    let prefix = &*format!("{}.", unique("audit"));
    watch(db).await;
    // Queues are known by their names once the app has started.
    let app = db.app().include(script::subscribers(db, prefix));
    outbox::telemetry::name_queues(script::QUEUES.iter().map(|queue| format!("{prefix}{queue}")));
    script::publish(db, prefix).await;
    let running = app.start().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();

    let told = scrape();
    let metric = |name: &str| told.by(name, &["queue"], prefix);
    let letters = saw(db, "letter", prefix, true).await;
    let (claimed, deleted) =
        (saw(db, "claimed", prefix, false).await, saw(db, "deleted", prefix, false).await);
    let inserted = saw(db, "inserted", prefix, false).await;
    let extended = saw(db, "extended", prefix, false).await;
    let (retried, snoozed) =
        (saw(db, "retried", prefix, false).await, saw(db, "snoozed", prefix, false).await);
    assert!(letters.len() >= 5 && retried.len() >= 3 && snoozed.len() >= 2, "a poor script");

    // Acked before they failed.
    let failed = told.by("outbox_exceptions_total", &["queue"], prefix);
    assert_eq!(failed.get(&vec!["first".to_owned()]), Some(&2), "{failed:?}");
    // Put off by an error, which is no failure.
    assert_eq!(failed.get(&vec!["snoozes".to_owned()]), None, "{failed:?}");

    let by_reason = |name| told.by(name, &["queue", "reason"], prefix);
    assert_eq!(by_reason("outbox_terminal_total"), letters);
    assert_eq!(by_reason("outbox_dead_letters_written_total"), letters);
    assert_eq!(metric("outbox_acked_total"), less(deleted, &letters));
    assert_eq!(metric("outbox_retried_total"), retried);
    assert_eq!(metric("outbox_snoozed_total"), snoozed);
    let published = plus(inserted, extended);
    assert_eq!(metric("outbox_published_messages_total"), published);
    assert_eq!(metric("outbox_fetched_messages_total"), claimed);
    let unstarted: Counts = letters
        .iter()
        .filter(|(key, _)| ["expired", "max_deliveries"].contains(&&*key[1]))
        .map(|(key, count)| (key.clone(), *count))
        .collect();
    let dispatched = less(claimed, &unstarted);
    assert_eq!(metric("outbox_dispatched_total"), dispatched);
    assert_eq!(metric("outbox_received_size_bytes_count"), dispatched);
    assert_eq!(metric("outbox_wait_seconds_count"), dispatched);
    let judged = dispatched.into_iter().filter(|(queue, _)| *queue != ["first"]).collect();
    assert_eq!(metric("outbox_process_duration_seconds_count"), judged);
    let ended = told.by("outbox_process_duration_seconds_count", &["outcome", "queue"], prefix);
    for outcome in ["retried", "snoozed"] {
        let of = ended.iter().filter(|(key, _)| key[0] == outcome);
        let of: Counts = of.map(|(key, count)| (key[1..].to_vec(), *count)).collect();
        assert_eq!(of, metric(&format!("outbox_{outcome}_total")), "{outcome}");
    }
    let reasons = told.by("outbox_terminal_total", &["reason"], prefix);
    assert_eq!(reasons.len(), 4, "every reason: {reasons:?}");
    for nothing in [
        "outbox_in_process",
        "outbox_lease_lost_total",
        "outbox_dispatch_abandoned_total",
        "outbox_waited_too_long_total",
        "outbox_drain_timeout_total",
        "outbox_publish_exceptions_total",
    ] {
        assert!(metric(nothing).is_empty(), "{nothing}: {:?}", metric(nothing));
    }
}
