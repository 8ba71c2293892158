//! A table that is locked, and sessions to which the server gives little time: an app
//! that cannot work asks seldom, and loses nothing.

use std::time::Duration;

use outbox::{App, RunningApp, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe::{free, gated};
use outbox_tests::wait::{PATIENCE, eventually};
use outbox_tests::wire::Wire;
use sqlx::Executor;
use sqlx::postgres::PgPoolOptions;
use tokio::time::{Instant, sleep};

use super::{OFTEN, SECOND, publish};

on_postgres!(
    a_locked_table_is_waited_for_without_a_spin,
    a_lock_timeout_on_a_locked_table_makes_no_spin,
    a_statement_timeout_on_a_locked_table_makes_no_spin,
    an_app_whose_idle_sessions_are_ended_makes_no_spin,
    a_statement_that_was_given_up_waits_for_no_lock_on_the_server,
    what_takes_longer_than_a_statement_may_is_claimed_in_smaller_parts,
    a_queue_whose_rows_all_take_longer_than_a_statement_may_stops_no_other,
);

/// The one that claims, the one that gives lost claims back, two that settle, the one that
/// extends leases, the one that listens.
const LOOPS: usize = 6;
/// Of a loop, a second.
const MOST: usize = 2;
/// And beside that: the first tries follow one another faster.
const FIRST: usize = 2;
/// How a claim begins.
const CLAIM: &str = "-- Leases due rows";
/// A trigger at claims.
const LEASED: &str = "BEFORE UPDATE ON outbox FOR EACH ROW
    WHEN (OLD.acquired_token IS NULL AND NEW.acquired_token IS NOT NULL";
const FOR: Duration = Duration::from_secs(4);
const ROWS: i64 = 20;
/// Subscribers that have nothing to do, and look for it all the time.
const OTHERS: usize = 20;

async fn a_locked_table_is_waited_for_without_a_spin(db: &Db) {
    locked(db, None).await;
}

async fn a_lock_timeout_on_a_locked_table_makes_no_spin(db: &Db) {
    locked(db, Some("lock_timeout = '50ms'")).await;
}

async fn a_statement_timeout_on_a_locked_table_makes_no_spin(db: &Db) {
    locked(db, Some("statement_timeout = '50ms'")).await;
}

/// The server does not look whether anybody still waits for an answer.
async fn a_statement_that_was_given_up_waits_for_no_lock_on_the_server(db: &Db) {
    let running = db.app().only([free("it", "q").0]).start().await.unwrap();
    let lock = db.lock().await;
    db.engine_waits().await;
    // Half of the time after which the server looks for a deadlock, and what a busy machine adds.
    sleep(6 * SECOND).await;
    let long = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND query_start <
            clock_timestamp() - current_setting('deadlock_timeout')::interval / 2 - interval '4 s'";
    assert_eq!(db.int(long).await, 0, "each waits for a lock no longer than that");
    lock.release().await;
    publish(db, "q", 0..ROWS).await;
    db.drained().await;
    running.stop().await.unwrap();
}

/// As where large rows are sent over a slow network.
async fn what_takes_longer_than_a_statement_may_is_claimed_in_smaller_parts(db: &Db) {
    publish(db, "q", 0..10 * ROWS).await;
    let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
        $$ BEGIN PERFORM pg_sleep(0.02); RETURN NEW; END $$";
    db.exec(slow).await;
    db.exec(format!("CREATE TRIGGER slow {LEASED}) EXECUTE FUNCTION slow()")).await;
    let (_wire, app) = app(db, Some("statement_timeout = '500ms'")).await;
    let running = started(&app.only([free("it", "q").0.fetch_batch(100)])).await;
    db.drained().await;
    running.stop().await.unwrap();
}

async fn a_queue_whose_rows_all_take_longer_than_a_statement_may_stops_no_other(db: &Db) {
    let slow = "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS \
        $$ BEGIN PERFORM pg_sleep(1); RETURN NEW; END $$";
    db.exec(slow).await;
    let slow = format!("CREATE TRIGGER slow {LEASED} AND NEW.queue = 'slow')");
    db.exec(format!("{slow} EXECUTE FUNCTION slow()")).await;
    publish(db, "slow", 0..ROWS).await;
    let (_wire, app) = app(db, Some("statement_timeout = '500ms'")).await;
    let queues = ["slow", "a", "b", "c"]
        .map(|queue| free(queue, queue).0.min_poll(SECOND / 10).max_poll(SECOND));
    let running = started(&app.only(queues)).await;
    // All of them fail together meanwhile.
    sleep(4 * SECOND).await;
    for queue in ["a", "b", "c"] {
        publish(db, queue, 0..ROWS).await;
    }
    let left = "SELECT count(*) FROM outbox WHERE queue <> 'slow'";
    eventually("the others are drained", async || db.int(left).await == 0).await;
    assert_eq!(db.rows().await, ROWS, "of the slow one each failed");
    db.exec("DROP FUNCTION slow CASCADE").await;
    db.drained().await;
    running.stop().await.unwrap();
}

/// An app through a proxy that counts, on sessions with this setting.
async fn app(db: &Db, setting: Option<&str>) -> (Wire, App) {
    // Those of the test are as they were.
    db.open_all().await;
    let options = db.pg().connect_options();
    let name = options.get_database().unwrap();
    if let Some(setting) = setting {
        db.exec(format!("ALTER DATABASE {name} SET {setting}")).await;
    }
    let wire = Wire::of(db).await;
    let pool = PgPoolOptions::new().connect_lazy_with(wire.options.clone());
    (wire, App::postgres(pool).names(db.names.clone()))
}

/// In that time the app asked for no more than its loops may.
async fn asks_seldom(wire: &Wire, time: Duration) {
    wire.begin();
    let begun = Instant::now();
    sleep(time).await;
    let (asked, took) = (wire.counts().asked, begun.elapsed().as_secs_f64());
    let first_line = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let asked: Vec<_> = asked.iter().map(|(text, count)| (*count, first_line(text))).collect();
    println!("in {took:.1} s: {asked:#?}");
    let each = MOST * (took.round() as usize) + FIRST;
    let all: usize = asked.iter().map(|(count, _)| count).sum();
    assert!(all <= LOOPS * each, "{all} statements in {took:.1} s");
    for (count, what) in asked {
        // Two loops settle, and two give lost claims back.
        let loops = if what.starts_with(CLAIM) { 1 } else { 2 };
        assert!(count <= loops * each, "{count} in {took:.1} s: {what}");
    }
}

/// A statement of the start may take longer than its session is given.
async fn started(app: &App) -> RunningApp {
    let end = Instant::now() + PATIENCE;
    loop {
        match app.start().await {
            Ok(running) => return running,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
        sleep(OFTEN).await;
    }
}

/// With five handlers that run when it begins, and end while it lasts.
async fn locked(db: &Db, setting: Option<&str>) {
    let (wire, app) = app(db, setting).await;
    let (subscriber, probe) = gated("it", "q");
    let subscriber = subscriber.max_workers(5).fetch_batch(5).lease_ttl(3 * SECOND);
    let often = |one: Subscriber| one.min_poll(OFTEN).max_poll(OFTEN);
    let others = (0..OTHERS).map(|n| often(free("other", &format!("other {n}")).0));
    let running = started(&app.only(others.chain([often(subscriber)]))).await;
    publish(db, "q", 0..ROWS).await;
    let mut seen: Vec<i64> = probe.starts(5).await.iter().map(|run| run.n).collect();
    let mut lock = db.pg().begin().await.unwrap();
    lock.execute("LOCK TABLE outbox IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let rows: i64 =
        sqlx::query_scalar("SELECT count(*) FROM outbox").fetch_one(&mut *lock).await.unwrap();
    assert_eq!(rows, ROWS);
    let end = async {
        sleep(SECOND).await;
        probe.let_end(1000);
    };
    tokio::join!(asks_seldom(&wire, FOR), end);
    lock.rollback().await.unwrap();
    db.drained().await;
    seen.extend(probe.more().await.iter().map(|run| run.n));
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, (0..ROWS).collect::<Vec<_>>(), "each was handled");
    assert_eq!(db.letters().await, 0);
    eventually("it answers", async || running.ping().await.is_ok()).await;
    running.stop().await.unwrap();
}

async fn an_app_whose_idle_sessions_are_ended_makes_no_spin(db: &Db) {
    let (wire, app) = app(db, Some("idle_session_timeout = '2s'")).await;
    let (subscriber, probe) = free("it", "q");
    let running = app.only([subscriber]).start().await.unwrap();
    publish(db, "q", 0..ROWS).await;
    db.drained().await;
    asks_seldom(&wire, 6 * SECOND).await;
    // By connections that were ended, as many as there are.
    publish(db, "q", ROWS..2 * ROWS).await;
    db.drained().await;
    let mut seen: Vec<i64> = probe.more().await.iter().map(|run| run.n).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..2 * ROWS).collect::<Vec<_>>(), "each was handled");
    assert_eq!(db.letters().await, 0);
    running.stop().await.unwrap();
}
