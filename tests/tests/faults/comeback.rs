//! After a failover the old server comes back, and the address still leads to it.

use std::collections::BTreeSet;

use outbox::{App, Context, FromContext, HandlerError, Subscriber, Tx};
use outbox_tests::backend::unique;
use outbox_tests::capture;
use outbox_tests::db::Db;
use outbox_tests::probe::{Probe, free, gated};
use outbox_tests::wait::eventually;
use sqlx::postgres::PgPool;
use tokio::time::{Instant, sleep};

use super::failover::{Pair, all_are_handled, most_refused, number, produce, refused};
use super::{OFTEN, SECOND};

/// The survivor has been promoted, and nobody knows.
async fn fail_over_unnoticed(pair: &Pair) {
    pair.lose_the_server().await;
    pair.standby.promote().unwrap();
}

fn often((subscriber, probe): (Subscriber, Probe)) -> (Subscriber, Probe) {
    (subscriber.lease_ttl(2 * SECOND).min_poll(OFTEN).max_poll(OFTEN), probe)
}

async fn numbers(pool: &PgPool, sql: &'static str) -> BTreeSet<i64> {
    sqlx::query_scalar(sql).fetch_all(pool).await.unwrap().into_iter().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_primary_that_is_back_as_a_standby_is_left_for_the_survivor() {
    let Some(pair) = Pair::new().await else { return };
    capture::start();
    let (name, queue) = (unique("comeback").leak() as &str, unique("comeback"));
    let pool = pair.pool();
    let (subscriber, probe) = often(gated(name, &queue));
    // It outlives the start of a server.
    let subscriber = subscriber.lease_ttl(10 * SECOND);
    let running = pair.app().only([subscriber]).start().await.unwrap();
    probe.let_end(20);
    for n in 0..20 {
        produce(&pool, &queue, n).await.unwrap();
    }
    eventually("they are acked", async || pair.db.rows().await == 0).await;
    produce(&pool, &queue, 20).await.unwrap();
    eventually("the next one runs", async || probe.running() == 1).await;
    let follow = format!("ALTER SYSTEM SET primary_conninfo = '{}'", pair.standby.url);
    pair.db.exec(follow).await;

    fail_over_unnoticed(&pair).await;
    pair.server.start_as_standby().unwrap();
    eventually("claims are refused", async || refused(name) > 0).await;
    probe.let_end(1);
    // Or was given up, where the server took longer than that.
    eventually("it has ended", async || probe.running() == 0).await;
    for n in 1000..1005 {
        assert!(produce(&pool, &queue, n).await.is_err(), "a standby takes no write");
    }
    let (begun, before) = (Instant::now(), refused(name));
    sleep(3 * SECOND).await;
    let (tries, took) = (refused(name) - before, begun.elapsed());
    assert!(tries <= most_refused(took), "{tries} claims in {took:?}");
    let acked = || capture::names(&queue).iter().filter(|event| *event == "acked").count();
    assert_eq!(acked(), 20, "what the standby refused is not taken for done");
    assert!(!running.health().check().await.ready);

    // Connections to the old server stay: nothing ends them.
    pair.proxy.lead_to(&pair.standby.url);
    probe.let_end(1000);
    let survivor = pair.pool();
    for n in 21..41 {
        produce(&survivor, &queue, n).await.unwrap();
    }
    all_are_handled(&survivor, &probe, 41).await;
    running.ping().await.unwrap();
    running.stop().await.unwrap();
    assert_eq!(acked(), 41);
}

/// Nothing is promised of two servers that both take writes; this is what happens. What the old
/// one took alone is handled by whoever works there, and the survivor never has it; of what
/// both have each is handled at least once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_primary_that_nobody_fenced_takes_messages_that_the_survivor_never_has() {
    let Some(pair) = Pair::new().await else { return };
    let pool = pair.pool();
    let (subscriber, probe) = often(free("it", "q"));
    let running = pair.app().only([subscriber]).start().await.unwrap();
    for n in 0..20 {
        produce(&pool, "q", n).await.unwrap();
    }
    fail_over_unnoticed(&pair).await;
    pair.server.start_again().unwrap();
    for n in 100..120 {
        eventually("it is published", async || produce(&pool, "q", n).await.is_ok()).await;
    }
    const LEFT: &str = "SELECT count(*) FROM outbox";
    const WRITTEN: &str = "SELECT n FROM biz";
    eventually("it handles them there", async || number(&pool, LEFT).await == 0).await;
    let alone = numbers(&pool, WRITTEN).await;
    pair.server.kill().unwrap();
    pair.proxy.lead_to(&pair.standby.url);
    let survivor = pair.pool();
    for n in 200..220 {
        produce(&survivor, "q", n).await.unwrap();
    }
    eventually("and the rest here", async || number(&survivor, LEFT).await == 0).await;
    let here = numbers(&survivor, WRITTEN).await;
    let handled: BTreeSet<i64> = probe.more().await.iter().map(|run| run.n).collect();
    let expected = |parts: &[std::ops::Range<i64>]| -> BTreeSet<i64> {
        parts.iter().cloned().flatten().collect()
    };
    assert_eq!(alone, expected(&[0..20, 100..120]));
    assert_eq!(here, expected(&[0..20, 200..220]));
    assert_eq!(handled, expected(&[0..20, 100..120, 200..220]));
    running.stop().await.unwrap();
}

/// The users' own pool too has connections to the old server, and handlers are lent them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_is_lent_leads_to_the_survivor() {
    let Some(pair) = Pair::new().await else { return };
    let pool = pair.pool();
    let booking = |ctx: Context| async move {
        let n: i64 = ctx.decode()?;
        let mut tx = Tx::<sqlx::Postgres>::from_context(&ctx).await?;
        sqlx::query("INSERT INTO done (n) VALUES ($1)").bind(n).execute(&mut *tx).await?;
        Ok::<(), HandlerError>(())
    };
    pair.db.exec("CREATE TABLE done (n bigint)").await;
    let subscriber = Subscriber::new("booking", "q", booking).requires::<Tx<sqlx::Postgres>>();
    let subscriber = subscriber.retry(outbox::retry::NoRetry);
    let subscriber = subscriber.lease_ttl(2 * SECOND).min_poll(OFTEN).max_poll(OFTEN);
    let app = App::postgres(pool.clone()).names(pair.db.names.clone()).only([subscriber]);
    let running = app.start().await.unwrap();
    fail_over_unnoticed(&pair).await;
    pair.server.start_as_standby().unwrap();
    // Each of the pool's connections leads there, in earnest: a read is all that it needs.
    let mut held = Vec::new();
    for _ in 0..pool.options().get_max_connections() {
        let mut one = pool.acquire().await.unwrap();
        sqlx::query("SELECT count(*) FROM biz").execute(&mut *one).await.unwrap();
        held.push(one);
    }
    drop(held);
    pair.proxy.lead_to(&pair.standby.url);
    let survivor = Db::at(&pair.standby.url).await;
    for n in 0..20 {
        survivor.publish("q", n).await;
    }
    survivor.drained().await;
    assert_eq!(survivor.letters().await, 0, "an old connection is no failure of a message");
    assert_eq!(survivor.int("SELECT count(DISTINCT n) FROM done").await, 20);
    running.stop().await.unwrap();
}
