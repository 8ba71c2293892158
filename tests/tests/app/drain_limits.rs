//! A drain that meets trouble ends all the same, and loses nothing.

use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};

use outbox::{Context, Subscriber};
use outbox_tests::db::{Db, Lock, Pool};
use outbox_tests::probe::{free, gated};
use outbox_tests::wait::{begun, eventually, soon};
use outbox_tests::{on_both, on_postgres};
use sqlx::{Connection, Executor};
use tokio::time::{Instant, timeout};

use super::*;

on_both!(
    a_stop_that_was_dropped_goes_on_when_called_again,
    a_database_that_does_not_answer_cannot_hold_up_a_stop,
    an_app_that_is_dropped_gives_its_rows_back,
    a_handler_that_blocks_its_thread_cannot_hold_up_a_stop,
);

on_postgres!(
    a_claim_under_way_is_given_back_unstarted,
    a_database_that_is_gone_cannot_hold_up_a_stop,
);

/// Long enough for a drain to come to the writes it has to wait for.
const A_WHILE: Duration = Duration::from_millis(300);

async fn a_stop_that_was_dropped_goes_on_when_called_again(db: &Db) {
    let case = async || {
        let (subscriber, probe) = gated("it", "q");
        let running = db.app().only([subscriber.max_workers(2)]).start().await.unwrap();
        db.publish("q", 1).await;
        db.publish("q", 2).await;
        probe.starts(2).await;
        let lock = db.lock().await;
        // Two batches: the second must find the connections open.
        probe.let_end(1);
        if db.is_postgres() {
            db.engine_waits().await;
        }
        probe.let_end(1);
        assert!(timeout(A_WHILE, running.stop()).await.is_err(), "the writes cannot be over");
        let mut stop = pin!(running.stop());
        assert!(timeout(A_WHILE / 6, stop.as_mut()).await.is_err(), "the writes cannot be over");
        lock.release().await;
        soon("stop", stop).await.unwrap();
        db.rows().await
    };
    // A drain gives its last writes five seconds.
    db.unless_stalled(SECOND, 0, case).await;
}

async fn a_database_that_does_not_answer_cannot_hold_up_a_stop(db: &Db) {
    let (subscriber, probe) = gated("it", "q");
    let app = db.app().only([subscriber.lease_ttl(2 * SECOND)]).drain_timeout(SECOND);
    let running = app.start().await.unwrap();
    db.publish("q", 7).await;
    probe.start().await;
    let lock = db.lock().await;
    probe.let_end(1);
    let _ = soon("stop", running.stop()).await;
    eventually("its ack is given up", async || match &db.pool {
        Pool::Postgres(_) => db.connections().await == 0,
        // But for the one that has the lock.
        Pool::Sqlite(pool) => pool.num_idle() + 1 == pool.size() as usize,
    })
    .await;
    lock.release().await;
    let (subscriber, again) = free("it", "q");
    let running = db.app().only([subscriber.lease_ttl(2 * SECOND)]).start().await.unwrap();
    // A claim that waited for the lock may have landed with nobody to hear of it.
    assert!(again.start().await.deliveries >= 2);
    db.drained().await;
    running.stop().await.unwrap();
}

async fn an_app_that_is_dropped_gives_its_rows_back(db: &Db) {
    let (subscriber, probe) = gated("it", "q");
    let running = db.app().only([subscriber.max_workers(1)]).start().await.unwrap();
    for n in 0..3 {
        db.publish("q", n).await;
    }
    probe.start().await;
    eventually("all are claimed", async || db.leased().await == 3).await;
    drop(running);
    eventually("all are given back", async || db.leased().await == 0).await;
    assert_eq!((probe.dropped(), db.rows().await, db.deliveries().await), (1, 3, 1));
}

async fn a_handler_that_blocks_its_thread_cannot_hold_up_a_stop(db: &Db) {
    let (release, blocked) = mpsc::channel::<()>();
    let (started, starts) = mpsc::channel();
    let both = Arc::new(Mutex::new((started, blocked)));
    let stubborn = Subscriber::new("stubborn", "q", move |_: Context| {
        let both = Arc::clone(&both);
        async move {
            let both = both.lock().unwrap();
            both.0.send(()).unwrap();
            let _ = both.1.recv();
        }
    });
    let quick = free("quick", "quick").0;
    let app = db.app().only([stubborn, quick]).drain_timeout(Duration::from_millis(50));
    let running = app.start().await.unwrap();
    db.publish("q", 7).await;
    eventually("it started", async || starts.try_recv().is_ok()).await;
    db.publish("quick", 7).await;
    eventually("the other is acked", async || db.rows().await == 1).await;
    let stopped = Instant::now();
    assert!(soon("stop", running.stop()).await.is_err());
    // For the handler; for results that are written already it would wait as long again.
    assert!(stopped.elapsed() < 10 * SECOND, "{:?}", stopped.elapsed());
    assert_eq!((db.rows().await, db.leased().await), (1, 1), "its lease runs out by itself");
    drop(release);
}

async fn a_claim_under_way_is_given_back_unstarted(db: &Db) {
    let (subscriber, probe) = gated("it", "q");
    let often = Duration::from_millis(5);
    let subscriber = subscriber.min_poll(often).max_poll(often);
    let running = db.app().only([subscriber]).start().await.unwrap();
    let Lock::Postgres(mut lock) = db.lock().await else { unreachable!() };
    db.engine_waits().await;
    let rows = "INSERT INTO outbox (queue, payload) VALUES ('q', '7'), ('q', '8')";
    lock.execute(rows).await.unwrap();
    let mut stop = pin!(running.stop());
    begun("stop", stop.as_mut()).await;
    lock.commit().await.unwrap();
    soon("stop", stop).await.unwrap();
    assert!(probe.more().await.is_empty());
    assert_eq!((db.rows().await, db.leased().await, db.deliveries().await), (2, 0, 0));
}

async fn a_database_that_is_gone_cannot_hold_up_a_stop(db: &Db) {
    let (subscriber, probe) = gated("it", "q");
    let app = db.app().only([subscriber.lease_ttl(10 * SECOND)]).drain_timeout(SECOND);
    let running = app.start().await.unwrap();
    db.publish("q", 7).await;
    probe.start().await;
    let server = outbox_tests::backend::pg_url().unwrap();
    let mut admin = sqlx::PgConnection::connect(&server).await.unwrap();
    let name = db.pg().connect_options().get_database().unwrap().to_owned();
    let mut allow = async |allowed: bool| {
        let alter = format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}");
        admin.execute(sqlx::AssertSqlSafe(alter)).await.unwrap();
        sqlx::query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1")
            .bind(&name)
            .execute(&mut admin)
            .await
            .unwrap();
    };
    allow(false).await;
    probe.let_end(1);
    let _ = soon("stop", running.stop()).await;
    allow(true).await;
    let (subscriber, again) = free("it", "q");
    let running = db.app().only([subscriber.lease_ttl(10 * SECOND)]).start().await.unwrap();
    assert_eq!(again.start().await.deliveries, 2, "nothing is lost");
    eventually("no row is left", async || {
        sqlx::query_scalar("SELECT count(*) FROM outbox")
            .fetch_one(db.pg())
            .await
            .is_ok_and(|n: i64| n == 0)
    })
    .await;
    running.stop().await.unwrap();
}
