//! Counts and sizes of what goes well, in numbers that are known before.

use std::sync::LazyLock;
use std::time::Duration;

use outbox::retry::{Delays, NoRetry};
use outbox::telemetry::{Event, METRICS, MetricKind, name_queues};
use outbox::{
    AckPolicy, App, Context, FromContext as _, HandlerError, Outcome, Outgoing, Subscriber, Tx,
};
use outbox_tests::backend::unique;
use outbox_tests::db::{Db, Pool};
use outbox_tests::kept::Kept;
use outbox_tests::probe::free;
use outbox_tests::wait::eventually;
use outbox_tests::{on_both, on_postgres};
use sqlx::postgres::PgPoolOptions;
use tokio::time::Instant;

use super::{Counts, EXPORTER, counts, scrape};

on_postgres!(a_transaction_that_did_not_begin_is_counted);
on_both!(
    claims_are_counted_by_whether_they_got_rows,
    the_delay_of_a_retry_is_what_the_strategy_gave,
    an_error_after_an_ack_by_hand_is_no_failure,
    a_publish_is_told_with_its_bytes_and_its_time,
    a_wait_is_told_from_when_the_row_was_due,
    what_a_subscriber_counts_is_there_from_its_start,
);

const SECOND: Duration = Duration::from_secs(1);
const WHOSE: [&str; 2] = ["queue", "subscriber"];

/// What the queues of a test begin with.
fn stem() -> String {
    LazyLock::force(&EXPORTER);
    format!("{}.", unique("values"))
}

async fn claims_are_counted_by_whether_they_got_rows(db: &Db) {
    let (stem, kept) = (&*stem(), Kept::default());
    let queue = format!("{stem}reads");
    let (subscriber, probe) = free("it", &queue);
    let running = db.app().only([subscriber]).recorder(kept.recorder()).start().await.unwrap();
    let claims =
        || scrape().by("outbox_fetches_total", &["queue", "subscriber", "non_empty"], stem);
    eventually("it has looked", async || !claims().is_empty()).await;
    let key: Vec<_> = claims().into_keys().collect();
    assert_eq!(key, [["reads", "it", "false"]]);
    for n in 0..3 {
        db.publish(&queue, n).await;
        probe.start().await;
    }
    db.drained().await;
    running.stop().await.unwrap();
    let told = claims();
    eventually("each is told", async || {
        let mut events = Counts::new();
        for event in kept.events() {
            if let Event::Fetched { count, .. } = event {
                let key = format!("reads it {}", count > 0);
                *events.entry(key.split(' ').map(str::to_owned).collect()).or_default() += 1;
            }
        }
        events == told
    })
    .await;
    assert_eq!(told[&["reads", "it", "true"].map(str::to_owned).to_vec()], 3);
    let rows = scrape().by("outbox_fetched_messages_total", &WHOSE, stem);
    assert_eq!(rows, counts(&[("reads it", 3)]));
}

async fn the_delay_of_a_retry_is_what_the_strategy_gave(db: &Db) {
    let stem = &*stem();
    let [fails, waits] = ["fails", "waits"].map(|queue| format!("{stem}{queue}"));
    let later = Subscriber::new("later", &*fails, |_| async { Err::<(), _>("no") });
    let later = later.retry(Delays::new([90 * SECOND]));
    let snoozes = Subscriber::new("snoozes", &*waits, |_| async { Outcome::Snooze(50 * SECOND) });
    let running = db.app().only([later, snoozes]).start().await.unwrap();
    db.send_all([&fails, &fails, &waits].map(|queue| Outgoing::new(queue, &7))).await;
    let of = |name: &str| scrape().by(name, &WHOSE, stem);
    eventually("both fail", async || of("outbox_retried_total") == counts(&[("fails later", 2)]))
        .await;
    let snoozed = counts(&[("waits snoozes", 1)]);
    eventually("one snoozes", async || of("outbox_snoozed_total") == snoozed).await;
    running.stop().await.unwrap();
    assert_eq!(of("outbox_retry_delay_seconds_count"), counts(&[("fails later", 2)]));
    assert_eq!(of("outbox_retry_delay_seconds_sum"), counts(&[("fails later", 180)]));
}

async fn an_error_after_an_ack_by_hand_is_no_failure(db: &Db) {
    let stem = &*stem();
    let [acks, fails] = ["acks", "fails"].map(|queue| format!("{stem}{queue}"));
    let by_hand = |name: &'static str, queue: &str, ack: bool| {
        let it = Subscriber::new(name, queue, move |context: Context| async move {
            if ack {
                context.ack();
            }
            Err::<(), _>("no")
        });
        it.ack(AckPolicy::Manual).retry(NoRetry)
    };
    let both = [by_hand("done", &acks, true), by_hand("undone", &fails, false)];
    let running = db.app().only(both).start().await.unwrap();
    db.send_all([&acks, &fails].map(|queue| Outgoing::new(queue, &7))).await;
    db.drained().await;
    running.stop().await.unwrap();
    let of = |name: &str| scrape().by(name, &WHOSE, stem);
    assert_eq!(of("outbox_acked_total")[&["acks", "done"].map(str::to_owned).to_vec()], 1);
    assert_eq!(of("outbox_exceptions_total"), counts(&[("fails undone", 1)]));
}

/// Whatever the handler makes of it.
async fn a_transaction_that_did_not_begin_is_counted(db: &Db) {
    let stem = &*stem();
    let queue = format!("{stem}wraps");
    let pool = PgPoolOptions::new().max_connections(1).acquire_timeout(Duration::from_millis(100));
    let pool = pool.connect_with((*db.pg().connect_options()).clone()).await.unwrap();
    let wraps = Subscriber::new("wraps", &*queue, async |context: Context| {
        let begun = Tx::<sqlx::Postgres>::from_context(&context).await.map(drop);
        begun.map_err(|error| HandlerError::new("wrapped", error))
    });
    let app = App::postgres(pool.clone()).names(db.names.clone());
    let wraps = wraps.requires::<Tx<sqlx::Postgres>>().retry(NoRetry);
    let running = app.only([wraps]).start().await.unwrap();
    let only = pool.acquire().await.unwrap();
    db.send(Outgoing::new(&*queue, &7)).await;
    let counted = || scrape().by("outbox_exceptions_total", &["exception_type"], stem);
    let of_wrapped = || counted().get(&vec!["wrapped".to_owned()]).copied().unwrap_or_default();
    eventually("it is counted", async || of_wrapped() > 0).await;
    drop(only);
    db.drained().await;
    running.stop().await.unwrap();
}

async fn a_publish_is_told_with_its_bytes_and_its_time(db: &Db) {
    let (stem, kept) = (&*stem(), Kept::default());
    let [one, other] = ["one", "other"].map(|queue| format!("{stem}{queue}"));
    name_queues([&one, &other]);
    let publisher = db.app().recorder(kept.recorder()).publisher();
    let batch = [Outgoing::new(&one, &1234), Outgoing::new(&one, &5), Outgoing::new(&other, "ab")];
    let single = Outgoing::new(&one, &67);
    let begun = Instant::now();
    match &db.pool {
        Pool::Postgres(pool) => {
            let mut tx = pool.begin().await.unwrap();
            publisher.publish_batch(&mut tx, batch).await.unwrap();
            publisher.send(&mut tx, single).await.unwrap();
            tx.commit().await.unwrap();
        }
        Pool::Sqlite(pool) => {
            let mut tx = outbox::sqlite::begin(pool).await.unwrap();
            publisher.publish_batch(&mut tx, batch).await.unwrap();
            publisher.send(&mut tx, single).await.unwrap();
            tx.commit().await.unwrap();
        }
    }
    let most = begun.elapsed().as_secs_f64();
    let told = scrape();
    let of = |name: &str| told.by(name, &["queue"], stem);
    let calls = counts(&[("one", 2), ("other", 1)]);
    assert_eq!(of("outbox_published_size_bytes_count"), calls);
    assert_eq!(of("outbox_published_size_bytes_sum"), counts(&[("one", 7), ("other", 4)]));
    assert_eq!(of("outbox_published_messages_total"), counts(&[("one", 3), ("other", 1)]));
    assert_eq!(of("outbox_publish_duration_seconds_count"), calls);
    eventually("each is told", async || kept.events().len() == 3).await;
    for queue in [&one, &other] {
        let took: Duration = kept
            .events()
            .iter()
            .filter_map(|event| match event {
                Event::Published { queue: of, duration, .. } if **of == **queue => Some(*duration),
                _ => None,
            })
            .sum();
        let sum = told.series.iter().find_map(|(name, labels, value)| {
            let is = name == "outbox_publish_duration_seconds_sum" && labels["queue"] == **queue;
            is.then_some(*value)
        });
        let sum = sum.unwrap();
        assert!((sum - took.as_secs_f64()).abs() < 1e-9, "{queue}: {sum} {took:?}");
        assert!(sum > 0.0 && sum <= most, "{queue}: {sum} of {most}");
    }
}

/// Not from when it was published; and what was always due has not waited.
async fn a_wait_is_told_from_when_the_row_was_due(db: &Db) {
    let (stem, kept) = (&*stem(), Kept::default());
    let names = ["aged", "always", "epoch", "moved", "new"];
    let [hour_ago, now, always, epoch] = if db.is_postgres() {
        ["clock_timestamp() - interval '1 hour'", "clock_timestamp()", "'-infinity'", "'epoch'"]
    } else {
        [
            "CAST((unixepoch('subsec') - 3600) * 1000000 AS INTEGER)",
            "CAST(unixepoch('subsec') * 1000000 AS INTEGER)",
            "-9223372036854775808",
            "0",
        ]
    };
    for (name, created, due) in [
        ("aged", now, hour_ago),
        ("always", now, always),
        ("epoch", now, epoch),
        ("moved", hour_ago, now),
    ] {
        let id = db.publish(&format!("{stem}{name}"), 7).await;
        let set = format!("created_at = {created}, next_attempt_at = {due}");
        db.exec(format!("UPDATE outbox SET {set} WHERE id = {id}")).await;
    }
    db.publish(&format!("{stem}new"), 7).await;
    let subscribers = names.map(|name| free(name, &format!("{stem}{name}")).0);
    let running = db.app().only(subscribers).recorder(kept.recorder()).start().await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    let told = scrape();
    let once = names.map(|name| format!("{name} {name}"));
    let once: Vec<_> = once.iter().map(|labels| (&**labels, 1)).collect();
    assert_eq!(told.by("outbox_wait_seconds_count", &WHOSE, stem), counts(&once));
    kept.gets(names.len(), "dispatched").await;
    for name in names {
        let sum = told.series.iter().find_map(|(metric, labels, value)| {
            let is = metric == "outbox_wait_seconds_sum" && labels["subscriber"] == name;
            (is && labels["queue"].starts_with(stem)).then_some(*value)
        });
        let sum = sum.unwrap();
        let expected = match name {
            "aged" => 3600.0..=3660.0,
            "always" | "epoch" => 0.0..=0.0,
            _ => 0.0..=60.0,
        };
        assert!(expected.contains(&sum), "{name}: {sum}");
        let waits = kept.events().into_iter().filter_map(|event| match event {
            Event::Dispatched { delivery, wait, .. } if delivery.subscriber == name => Some(wait),
            _ => None,
        });
        let waits: Vec<_> = waits.map(|wait| wait.as_secs_f64()).collect();
        assert_eq!(waits, [sum], "{name}");
    }
}

/// So that a first event is a change.
async fn what_a_subscriber_counts_is_there_from_its_start(db: &Db) {
    let queue = format!("{}idle", stem());
    let running = db.app().only([free("it", &queue).0]).start().await.unwrap();
    let told = scrape();
    running.stop().await.unwrap();
    let of_subscriber = METRICS
        .iter()
        .filter(|metric| metric.labels.starts_with(&WHOSE) && metric.kind != MetricKind::Histogram);
    // The kinds of errors are not known before.
    for metric in of_subscriber.filter(|metric| !metric.labels.contains(&"exception_type")) {
        let there = told
            .series
            .iter()
            .any(|(name, labels, _)| name == metric.name && labels.get("queue") == Some(&queue));
        assert!(there, "{}", metric.name);
    }
}
