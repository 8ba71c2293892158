//! The server dies and its standby takes over, behind the same address.

use outbox::{App, Outgoing, Publisher};
use outbox_tests::backend::{require, unique};
use outbox_tests::capture;
use outbox_tests::db::Db;
use outbox_tests::probe::{Probe, free};
use outbox_tests::proxy::Proxy;
use outbox_tests::server::{Server, Standby};
use outbox_tests::wait::eventually;
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio::time::{Instant, sleep};

use super::{OFTEN, SECOND, drain};

/// A server with a standby, and a proxy that leads to the one or the other.
pub struct Pair {
    pub proxy: Proxy,
    pub standby: Standby,
    pub db: Db,
    pub server: Server,
}

impl Pair {
    pub async fn new() -> Option<Self> {
        if !require("postgres") {
            return None;
        }
        let server = Server::start(&[("fsync", "off")]).unwrap();
        let db = Db::of(&server).await;
        db.exec("CREATE TABLE biz (n bigint)").await;
        let standby = server.standby("next").unwrap();
        let proxy = Proxy::before(&db).await;
        Some(Self { proxy, standby, db, server })
    }

    /// By the address that stays.
    pub fn pool(&self) -> PgPool {
        let pool = PgPoolOptions::new().acquire_timeout(5 * SECOND);
        pool.connect_lazy_with(self.proxy.options(&self.db))
    }

    pub fn app(&self) -> App {
        App::postgres(self.pool()).names(self.db.names.clone())
    }

    /// The standby has all; then the server dies.
    pub async fn lose_the_server(&self) {
        let level =
            "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()";
        eventually("the standby has all", async || self.db.int(level).await == 1).await;
        self.server.kill().unwrap();
    }

    /// And its address leads to the standby.
    async fn fail_over(&self) {
        self.lose_the_server().await;
        self.proxy.lead_to(&self.standby.url);
    }
}

/// Writes a number and publishes it.
pub async fn produce(pool: &PgPool, queue: &str, n: i64) -> anyhow::Result<()> {
    let mut tx = pool.begin().await?;
    sqlx::query("INSERT INTO biz (n) VALUES ($1)").bind(n).execute(&mut *tx).await?;
    Publisher::default().publish_batch(&mut tx, [Outgoing::new(queue, &n)]).await?;
    Ok(tx.commit().await?)
}

/// How many claims of a subscriber a standby has refused.
pub fn refused(subscriber: &str) -> usize {
    let lines = capture::lines();
    let told = |line: &&capture::Line| {
        line.get("subscriber") == Some(subscriber)
            && line.get("error").is_some_and(|text| text.contains("read-only transaction"))
    };
    lines.iter().filter(told).count()
}

pub async fn number(pool: &PgPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.unwrap()
}

pub async fn all_are_handled(pool: &PgPool, probe: &Probe, at_least: usize) {
    eventually("all are handled", async || number(pool, "SELECT count(*) FROM outbox").await == 0)
        .await;
    let mut seen: Vec<i64> = probe.more().await.iter().map(|run| run.n).collect();
    seen.sort_unstable();
    seen.dedup();
    let written: Vec<i64> =
        sqlx::query_scalar("SELECT n FROM biz ORDER BY n").fetch_all(pool).await.unwrap();
    assert_eq!(seen, written, "what was written was handled, and nothing else");
    assert!(seen.len() >= at_least, "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_outlives_a_failover_and_waits_while_its_server_is_a_standby() {
    let Some(pair) = Pair::new().await else { return };
    capture::start();
    let queue = unique("failover");
    let pool = pair.pool();
    let (subscriber, probe) = free("outlives", &queue);
    let subscriber = subscriber.lease_ttl(2 * SECOND).min_poll(OFTEN).max_poll(OFTEN);
    let running = pair.app().only([subscriber]).start().await.unwrap();
    for n in 0..20 {
        produce(&pool, &queue, n).await.unwrap();
    }
    pair.fail_over().await;
    let refused = || refused("outlives");
    eventually("claims are refused by the standby", async || refused() > 0).await;
    assert!(produce(&pool, &queue, 1000).await.is_err(), "a standby takes no write");
    let (before, begun) = (refused(), Instant::now());
    sleep(3 * SECOND).await;
    let tries = refused() - before;
    assert!(tries <= 12, "{tries} claims in {:?}", begun.elapsed());
    pair.standby.promote().unwrap();
    for n in 20..40 {
        produce(&pool, &queue, n).await.unwrap();
    }
    all_are_handled(&pool, &probe, 40).await;
    running.ping().await.unwrap();
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_that_starts_on_a_standby_begins_with_its_promotion() {
    let Some(pair) = Pair::new().await else { return };
    let pool = pair.pool();
    produce(&pool, "q", 1).await.unwrap();
    pair.fail_over().await;
    let (subscriber, probe) = free("it", "q");
    let running =
        pair.app().only([subscriber.min_poll(OFTEN).max_poll(OFTEN)]).start().await.unwrap();
    let health = running.health();
    eventually("it is not ready", async || !health.check().await.ready).await;
    pair.standby.promote().unwrap();
    all_are_handled(&pool, &probe, 1).await;
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_on_a_standby_ends_in_time() {
    let Some(pair) = Pair::new().await else { return };
    let begin = async || pair.fail_over().await;
    let stopped = drain::Stopped::in_trouble(&pair.db, pair.app(), begin).await;
    pair.standby.promote().unwrap();
    stopped.comes_back_on(&Db::at(&pair.standby.url).await).await;
}
