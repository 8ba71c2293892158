//! A row belongs to whoever holds its lease, for as long as the handler lives and
//! no longer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::{Context, Outgoing, Published, Publisher, Subscriber, TimerConflict};
use outbox_tests::db::Db;
use outbox_tests::probe::Run;
use outbox_tests::wait::{eventually, eventually_within, soon};
use outbox_tests::{capture, on_both, on_postgres, probe};
use tokio::time::Instant;

use super::{MINUTE, SECOND, gated};

on_both!(
    a_stolen_lease_cancels_the_handler_and_writes_nothing,
    a_result_that_comes_after_the_lease_was_stolen_is_dropped,
    a_row_that_waited_past_its_lease_is_not_started,
    of_sixteen_rows_for_one_slow_worker_none_starts_after_its_lease,
    the_lease_of_a_dead_owner_is_taken_over_when_it_runs_out,
);

on_postgres!(
    a_row_that_somebody_has_locked_keeps_no_other_lease_from_being_extended,
    a_timer_that_is_handled_is_neither_moved_nor_locked,
);

/// By whoever sets it: he would wait for the ack of another one while this ack waits for him.
async fn a_timer_that_is_handled_is_neither_moved_nor_locked(db: &Db) {
    let (subscriber, probe) = gated("q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    let timer = |name, n| Outgoing::new("q", &n).timer_id(name);
    let later = |name, n| timer(name, n).on_conflict(TimerConflict::Extend).delay(MINUTE);
    for (name, n) in [("a", 1), ("b", 2)] {
        db.send(timer(name, n)).await;
        probe.start().await;
    }
    let publisher = Publisher::new(db.names.clone());
    let mut tx = db.pg().begin().await.unwrap();
    assert_eq!(publisher.send(&mut tx, later("b", 3)).await.unwrap(), Published::Duplicate);
    let batch = vec![later("b", 3), timer("a", 3), Outgoing::new("others", &3)];
    let published = publisher.publish_batch(&mut tx, batch).await.unwrap();
    assert_eq!(published[..2], [Published::Duplicate; 2]);
    probe.let_end(2);
    eventually("both are acked", async || db.rows().await == 0).await;
    tx.commit().await.unwrap();
    running.stop().await.unwrap();
    assert_eq!((probe.finished(), probe.dropped(), db.rows().await), (2, 0, 1));
}

async fn a_row_that_somebody_has_locked_keeps_no_other_lease_from_being_extended(db: &Db) {
    let (subscriber, probe) = gated("q");
    let running = db.app().only([subscriber.lease_ttl(9 * SECOND)]).start().await.unwrap();
    let timer = |n| Outgoing::new("q", &n).timer_id("t").on_conflict(TimerConflict::Extend);
    db.send(timer(1)).await;
    let locked = probe.start().await;
    db.publish("q", 2).await;
    let other = probe.start().await;
    let mut tx = db.pg().begin().await.unwrap();
    sqlx::query("SELECT FROM outbox WHERE timer_id = 't' FOR UPDATE")
        .execute(&mut *tx)
        .await
        .unwrap();
    let long = other.lease_deadline + 9 * SECOND;
    eventually("the other lease goes on", async || other.context.lease_deadline() >= long).await;
    soon("the locked one runs out", locked.context.cancelled().cancelled()).await;
    tx.rollback().await.unwrap();
    probe.let_end(1);
    eventually("the other is settled", async || db.rows().await == 1).await;
    assert!(!other.context.cancelled().is_cancelled());
    // Nobody else has the row: its lease is over, and it is claimed again.
    assert_eq!(probe.start().await.n, 1);
    probe.let_end(1);
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!((probe.finished(), probe.dropped(), db.letters().await), (2, 1, 0));
}

/// What was told of a lease that a row of the queue lost.
pub(super) fn lost(queue: &str) -> Option<capture::Line> {
    capture::events(queue).into_iter().find(|line| line.event() == Some("lease_lost"))
}

/// As another claim would do, but for a lease that is never over: the row stays the
/// thief's, however long it takes to look.
async fn steal(db: &Db) {
    let (token, year_2100) = if db.is_postgres() {
        ("'00000000-0000-4000-8000-000000000007'", "TIMESTAMPTZ '2100-01-01'")
    } else {
        ("x'00000000000040008000000000000007'", "4102444800000000")
    };
    let set = format!("acquired_token = {token}, acquired_at = {year_2100}");
    db.exec(format!("UPDATE outbox SET {set}")).await;
}

/// The row is the thief's, untouched.
async fn is_stolen(db: &Db) -> bool {
    let token = if db.is_postgres() { "acquired_token::text" } else { "hex(acquired_token)" };
    let sql = format!("SELECT {token} FROM outbox WHERE attempts_count = 0");
    db.texts(sql).await.concat().ends_with("000000000007")
}

async fn a_stolen_lease_cancels_the_handler_and_writes_nothing(db: &Db) {
    capture::start();
    let queue = outbox_tests::backend::unique("stolen");
    let (subscriber, probe) = probe::gated("it", &queue);
    let subscriber = subscriber.lease_ttl(9 * SECOND);
    let running = db.app().only([subscriber]).start().await.unwrap();
    db.publish(&queue, 7).await;
    let run = probe.start().await;
    steal(db).await;
    soon("the handler is told", run.context.cancelled().cancelled()).await;
    eventually("the handler is dropped", async || probe.dropped() == 1).await;
    eventually("it is told", async || lost(&queue).is_some()).await;
    running.stop().await.unwrap();
    assert!(is_stolen(db).await);
    assert_eq!(probe.finished(), 0);
}

async fn a_result_that_comes_after_the_lease_was_stolen_is_dropped(db: &Db) {
    capture::start();
    for (n, result) in [(1, Ok(())), (2, Err("no".to_owned()))] {
        let queue = outbox_tests::backend::unique("late");
        let (subscriber, probe) = probe::with_result("it", &queue, move |_: &Run| result.clone());
        let running = db.app().only([subscriber]).start().await.unwrap();
        db.publish(&queue, n).await;
        probe.start().await;
        steal(db).await;
        probe.let_end(1);
        eventually("it is told", async || lost(&queue).is_some()).await;
        let phase = if n == 1 { "terminal" } else { "retry" };
        assert_eq!(lost(&queue).unwrap().get("phase"), Some(phase));
        running.stop().await.unwrap();
        assert!(is_stolen(db).await);
        assert_eq!((probe.finished(), db.letters().await), (1, 0));
        db.exec("DELETE FROM outbox").await;
    }
}

/// How many rows of a subscriber waited for too long, as it is told.
fn skips(subscriber: &str) -> usize {
    capture::count(|line| {
        line.get("subscriber") == Some(subscriber) && line.says("message", "was not started")
    })
}

/// The first message keeps the only worker busy, and keeps its lease; that of the
/// second runs out in the inbox.
async fn a_row_that_waited_past_its_lease_is_not_started(db: &Db) {
    capture::start();
    let name: &str = outbox_tests::backend::unique("waited past its lease").leak();
    let (subscriber, probe) = probe::gated(name, "q");
    let subscriber = subscriber.max_workers(1).lease_ttl(12 * SECOND);
    let running = db.app().only([subscriber]).start().await.unwrap();
    db.send_all([1, 2].map(|n| Outgoing::new("q", &n))).await;
    let first = probe.start().await;
    assert_eq!(first.n, 1);
    // An extension reaches further than that only once the first lease is over.
    let past = first.lease_deadline + 12 * SECOND;
    eventually("the lease is over", async || first.context.lease_deadline() > past).await;
    probe.let_end(1);
    let second = probe.start().await;
    assert_eq!(second.n, 2);
    assert!(second.lease_deadline > second.at, "it is run on a lease that holds");
    assert!(skips(name) > 0);
    probe.let_end(1);
    db.drained().await;
    running.stop().await.unwrap();
    assert_eq!((probe.finished(), probe.more().await.len()), (2, 0));
}

/// Nothing is known of the handler when they are claimed, and it takes a third of a lease:
/// of what waits most is too old when its turn comes. The first six runs show it, and the
/// others take no time.
async fn of_sixteen_rows_for_one_slow_worker_none_starts_after_its_lease(db: &Db) {
    const TTL: Duration = Duration::from_secs(6);
    capture::start();
    let queue = outbox_tests::backend::unique("sixteen");
    let name: &str = outbox_tests::backend::unique("a third of a lease").leak();
    let starts = Arc::<Mutex<Vec<(i64, Duration)>>>::default();
    let seen = Arc::clone(&starts);
    let slow = Subscriber::new(name, queue.as_str(), move |ctx: Context| {
        let left = ctx.lease_deadline().saturating_duration_since(Instant::now());
        let mut seen = seen.lock().unwrap();
        seen.push((ctx.decode().unwrap(), left));
        tokio::time::sleep(if seen.len() <= 6 { TTL / 3 } else { Duration::ZERO })
    });
    db.send_all((0..16_i64).map(|n| Outgoing::new(queue.as_str(), &n))).await;
    let slow = slow.max_workers(1).fetch_batch(16).lease_ttl(TTL);
    let running = db.app().only([slow]).start().await.unwrap();
    eventually_within(MINUTE, "no row is left", async || db.rows().await == 0).await;
    running.stop().await.unwrap();
    let starts = starts.lock().unwrap().clone();
    println!("{} starts, {} skips: {starts:.0?}", starts.len(), skips(name));
    assert!(starts.iter().all(|(_, left)| !left.is_zero()), "{starts:?}");
    assert!(skips(name) > 0, "each came in time");
    let mut numbers: Vec<i64> = starts.iter().map(|(n, _)| *n).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (0..16).collect::<Vec<_>>(), "each was handled");
    // A lease is lost only where nothing runs for as long as it lasts.
    let lost = capture::names(&queue).iter().filter(|name| *name == "lease_lost").count();
    assert!(starts.len() <= 16 + lost, "none twice whose lease was not lost: {starts:?}");
    assert_eq!(db.letters().await, 0);
}

/// Makes the row look as if its owner had died that long ago.
pub(super) async fn owned(db: &Db, id: i64, token: &str, deliveries: u32, ago: Duration) {
    db.exec(owning(db, id, token, deliveries, ago)).await;
}

/// The statement for it.
pub(super) fn owning(db: &Db, id: i64, token: &str, deliveries: u32, ago: Duration) -> String {
    let (token, at) = if db.is_postgres() {
        let ago = format!("clock_timestamp() - interval '{} microseconds'", ago.as_micros());
        (format!("'{token}'"), ago)
    } else {
        let ago = format!("CAST(unixepoch('subsec') * 1000000 AS INTEGER) - {}", ago.as_micros());
        (format!("x'{}'", token.replace('-', "")), ago)
    };
    format!(
        "UPDATE outbox SET acquired_token = {token}, acquired_at = {at}, deliveries_count = {deliveries} WHERE id = {id}"
    )
}

/// A token of an ordinary run.
pub(super) const BESIDE_OTHERS: &str = "00000000-0000-4000-8000-000000000001";

async fn the_lease_of_a_dead_owner_is_taken_over_when_it_runs_out(db: &Db) {
    let id = db.publish("q", 7).await;
    owned(db, id, BESIDE_OTHERS, 1, Duration::ZERO).await;
    let (subscriber, probe) = gated("q");
    let ttl = 2 * SECOND;
    let running = db.app().only([subscriber.lease_ttl(ttl)]).start().await.unwrap();
    let run = probe.start().await;
    assert_eq!((run.id, run.deliveries), (id, 2));
    probe.let_end(1);
    db.drained().await;
    running.stop().await.unwrap();
}
