//! A database that does not answer keeps no probe waiting.

use std::time::Duration;

use outbox::App;
use outbox::health::Report;
use outbox_tests::backend::unique;
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe::free;
use outbox_tests::proxy::Proxy;
use outbox_tests::server::scratch;
use outbox_tests::wait::eventually;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::{Probes, SOON};

on_postgres!(
    a_database_that_hangs_keeps_no_check_waiting,
    a_listener_that_is_lost_is_told_and_the_app_stays_ready,
);

async fn behind(db: &Db) -> (Proxy, App) {
    let proxy = Proxy::before(db).await;
    let pool = PgPoolOptions::new().connect_lazy_with(proxy.options(db));
    let app = App::postgres(pool).names(db.names.clone()).only([free("it", "q").0]);
    (proxy, app.drain_timeout(Duration::from_millis(10)))
}

async fn a_database_that_hangs_keeps_no_check_waiting(db: &Db) {
    let (proxy, app) = behind(db).await;
    let running = app.start().await.unwrap();
    let probes = Probes::of(app.health()).await;
    eventually("it is ready", async || probes.ready().await == 200).await;
    proxy.hang();
    // Who gave up tells after how long.
    let (status, body) = timeout(SOON, probes.get("/ready")).await.expect("an answer");
    assert_eq!(status, 503);
    assert!(body["reasons"].to_string().contains("did not answer within 2s"), "{body}");
    assert_eq!(timeout(SOON, probes.live()).await.expect("an answer"), 200);
    let quick = app.health().limit(Duration::from_millis(50));
    let in_time = |report: &Report| {
        !report.ready && report.reasons.iter().any(|why| why.contains("not answer within 50ms"))
    };
    let report = timeout(SOON, quick.check()).await.expect("an answer");
    assert!(in_time(&report), "{report:?}");
    // Many at once, as of several probes: each has its own limit.
    let mut took = Vec::new();
    for _ in 0..3 {
        let mut many = JoinSet::new();
        for _ in 0..20 {
            let quick = quick.clone();
            many.spawn(async move { quick.check().await });
        }
        let begun = Instant::now();
        let many = timeout(SOON, many.join_all()).await.expect("answers");
        took.push(begun.elapsed());
        assert!(many.iter().all(|report| in_time(report) && report.live), "{many:?}");
    }
    // The machine may stand still in two of three.
    let least = *took.iter().min().unwrap();
    assert!(least < Duration::from_millis(20 * 50), "they waited for each other: {took:?}");
    let ping = timeout(SOON, running.ping()).await.expect("an answer");
    let told = ping.unwrap_err().to_string();
    assert!(told.contains("no answer within 5 s"), "{told}");
    drop(running);
}

async fn a_listener_that_is_lost_is_told_and_the_app_stays_ready(db: &Db) {
    let running = db.app().only([free("it", "q").0]).start().await.unwrap();
    let health = running.health().limit(SOON);
    eventually("it listens", async || health.check().await.listener_up == Some(true)).await;
    db.allow_connections(false).await;
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'engine'
         AND (query ILIKE '%pg_notify($1%' OR query ILIKE '%virtualtransaction%')";
    eventually("its listener is killed", async || db.int(kill).await == 1).await;
    eventually("it is told", async || health.glance().listener_up == Some(false)).await;
    eventually("it is ready without", async || {
        let report = health.check().await;
        report.ready && report.listener_up == Some(false)
    })
    .await;
    db.allow_connections(true).await;
    eventually("it listens again", async || health.glance().listener_up == Some(true)).await;
    running.stop().await.unwrap();
}

/// One with a rollback journal: in the others readers go on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_somebody_keeps_for_himself_gives_no_sign_of_life() {
    let file = scratch().join(unique("kept"));
    let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true);
    let options = options.journal_mode(SqliteJournalMode::Delete);
    let pool = SqlitePoolOptions::new().connect_lazy_with(options.busy_timeout(SOON / 100));
    outbox::migrate(&pool).await.unwrap();
    let running = App::sqlite(pool.clone()).only([free("it", "q").0]).start().await.unwrap();
    running.ping().await.unwrap();
    let mut other = pool.acquire().await.unwrap();
    let mut keep = async || sqlx::query("BEGIN EXCLUSIVE").execute(&mut *other).await.is_ok();
    eventually("nobody else reads it", async || keep().await).await;
    let told = running.ping().await.unwrap_err().to_string();
    assert!(told.contains("locked"), "{told}");
    sqlx::query("ROLLBACK").execute(&mut *other).await.unwrap();
    eventually("it is there again", async || running.ping().await.is_ok()).await;
    running.stop().await.unwrap();
    drop(other);
    pool.close().await;
    std::fs::remove_file(file).unwrap();
}
