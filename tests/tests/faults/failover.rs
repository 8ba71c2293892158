//! The server dies and its standby takes over, behind the same address.

use std::time::Duration;

use outbox::{App, Outgoing, Publisher};
use outbox_tests::backend::{require, unique};
use outbox_tests::capture;
use outbox_tests::db::Db;
use outbox_tests::probe::{Probe, free, gated};
use outbox_tests::proxy::Proxy;
use outbox_tests::server::{Server, Standby};
use outbox_tests::wait::eventually;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{Connection, Executor, PgConnection};
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

    async fn is_level(&self) {
        let level =
            "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()";
        eventually("the standby has all", async || self.db.int(level).await == 1).await;
    }

    /// The standby has all; then the server dies.
    pub async fn lose_the_server(&self) {
        self.is_level().await;
        self.server.kill().unwrap();
    }

    /// The standby has all so far, and what comes from now on it never has: it looks for its
    /// server where there is none. Nobody waits for it.
    async fn cut_off_the_standby(&self) {
        self.is_level().await;
        let mut standby = PgConnection::connect(&self.standby.url).await.unwrap();
        for sql in [
            "ALTER SYSTEM SET primary_conninfo = 'host=127.0.0.1 port=1'",
            "SELECT pg_reload_conf()",
        ] {
            standby.execute(sql).await.unwrap();
        }
        let follows = "SELECT count(*) FROM pg_stat_replication";
        eventually("it is cut off", async || self.db.int(follows).await == 0).await;
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
    capture::count(|line| {
        line.get("subscriber") == Some(subscriber) && line.says("error", "read-only transaction")
    })
}

/// How many it may refuse in that time.
pub fn most_refused(took: Duration) -> usize {
    usize::try_from(4 * took.as_millis() / 1000).unwrap()
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
    let (begun, before) = (Instant::now(), refused());
    sleep(3 * SECOND).await;
    let (tries, took) = (refused() - before, begun.elapsed());
    assert!(tries <= most_refused(took), "{tries} claims in {took:?}");
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

async fn numbers(pool: &PgPool, sql: &'static str) -> Vec<i64> {
    sqlx::query_scalar(sql).fetch_all(pool).await.unwrap()
}

/// What a message says, as the table has it.
const MESSAGES: &str = "SELECT convert_from(payload, 'UTF8')::bigint AS n FROM outbox ORDER BY n";
const WRITTEN: &str = "SELECT n FROM biz ORDER BY n";

/// The server acknowledges what it has alone, and dies: of that the survivor has nothing, and
/// of everything before it has a row of the caller and its message, or neither. Acks are lost
/// as publishes are: what they were for is handled again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_failover_loses_it_loses_with_the_rows_it_was_written_beside() {
    let Some(pair) = Pair::new().await else { return };
    let pool = pair.pool();
    let (subscriber, probe) = gated("it", "q");
    // No lease runs out while the standby is cut off.
    let subscriber = subscriber.lease_ttl(10 * SECOND).min_poll(OFTEN).max_poll(OFTEN);
    let subscriber = subscriber.max_workers(20);
    let running = pair.app().only([subscriber]).start().await.unwrap();
    probe.let_end(10);
    for n in 0..10 {
        produce(&pool, "q", n).await.unwrap();
    }
    eventually("these are handled", async || pair.db.rows().await == 0).await;
    for n in 10..20 {
        produce(&pool, "q", n).await.unwrap();
    }
    eventually("and these run", async || probe.running() == 10).await;
    pair.cut_off_the_standby().await;
    probe.let_end(30);
    for n in 20..40 {
        produce(&pool, "q", n).await.unwrap();
    }
    eventually("all is acknowledged", async || pair.db.rows().await == 0).await;
    let first: Vec<i64> = probe.more().await.iter().map(|run| run.n).collect();
    assert_eq!(first.len(), 40);

    pair.server.kill().unwrap();
    pair.standby.promote().unwrap();
    // Before anybody works there.
    let survivor = PgPool::connect(&pair.standby.url).await.unwrap();
    let range = |numbers: std::ops::Range<i64>| numbers.collect::<Vec<_>>();
    assert_eq!(numbers(&survivor, WRITTEN).await, range(0..20), "what it has, it has in order");
    assert_eq!(numbers(&survivor, MESSAGES).await, range(10..20), "those that were not acked");

    pair.proxy.lead_to(&pair.standby.url);
    probe.let_end(1000);
    for n in 40..60 {
        // One whose commit has landed without an answer is not repeated.
        eventually("it is published", async || {
            numbers(&survivor, WRITTEN).await.contains(&n) || produce(&pool, "q", n).await.is_ok()
        })
        .await;
    }
    eventually("all are handled", async || {
        number(&survivor, "SELECT count(*) FROM outbox").await == 0
    })
    .await;
    let mut again: Vec<i64> = probe.more().await.iter().map(|run| run.n).collect();
    again.sort_unstable();
    assert_eq!(again, [range(10..20), range(40..60)].concat());
    assert_eq!(numbers(&survivor, WRITTEN).await, [range(0..20), range(40..60)].concat());

    // The old one, when it is back, takes nothing more, and nobody has written to it.
    pair.server.start_as_standby().unwrap();
    let old = pair.db.pg();
    assert!(produce(old, "q", 1000).await.is_err(), "a standby takes no write");
    assert_eq!(numbers(old, WRITTEN).await, range(0..40));
    running.stop().await.unwrap();
}
