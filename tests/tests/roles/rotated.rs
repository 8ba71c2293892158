//! Credentials that are replaced while an app runs, as where a token lasts an hour.

use std::time::Duration;

use outbox::{App, RunningApp};
use outbox_tests::backend::unique;
use outbox_tests::db::Db;
use outbox_tests::probe::{Probe, gated};
use outbox_tests::wait::eventually;
use outbox_tests::{capture, on_postgres};
use sqlx::postgres::PgPool;

use crate::Granted;

on_postgres!(
    an_app_goes_on_with_the_credentials_that_its_pool_was_given_last,
    what_a_handler_came_to_is_kept_until_there_are_credentials_again,
);

const HOUR: Duration = Duration::from_secs(3600);

/// An app that is woken or sleeps for an hour, and a role that may do the same as its.
struct Rotation<'a> {
    granted: Granted<'a>,
    next: String,
    pool: PgPool,
    running: RunningApp,
    probe: Probe,
}

impl<'a> Rotation<'a> {
    async fn new(db: &'a Db) -> Self {
        capture::start();
        let granted = Granted::new(db, &db.names, false).await;
        let next = unique("next");
        let consumer = &granted.roles.consumer;
        db.exec(format!("CREATE ROLE {next} LOGIN IN ROLE \"{consumer}\"")).await;
        let pool = granted.consumer();
        let (asleep, probe) = gated("asleep", "asleep");
        let asleep = asleep.min_poll(HOUR).max_poll(HOUR).lease_ttl(HOUR);
        let app = App::postgres(pool.clone()).names(db.names.clone()).only([asleep]);
        let running = app.start().await.unwrap();
        db.publish("asleep", 1).await;
        assert_eq!(probe.start().await.n, 1);
        Self { granted, next, pool, running, probe }
    }

    /// Those that the app has so far are good for nothing.
    async fn revoke(&self) {
        let (db, old) = (self.granted.db, &self.granted.roles.consumer);
        db.exec(format!("ALTER ROLE \"{old}\" NOLOGIN")).await;
        let role = old.replace('\'', "''");
        let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename =";
        let there = format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{role}'");
        let both = "the engine's and the listener's";
        eventually(both, async || db.int(there.clone()).await >= 2).await;
        assert!(db.int(format!("{kill} '{role}'")).await >= 2, "{both}");
    }

    fn replace(&self) {
        let options = (*self.pool.connect_options()).clone();
        self.pool.set_connect_options(options.username(&self.next));
    }

    async fn end(self) {
        self.running.stop().await.unwrap();
        self.pool.close().await;
        self.granted.db.exec(format!("DROP ROLE {}", self.next)).await;
        self.granted.end(&[&self.pool]).await;
    }
}

async fn an_app_goes_on_with_the_credentials_that_its_pool_was_given_last(db: &Db) {
    let rotation = Rotation::new(db).await;
    rotation.probe.let_end(10);
    db.drained().await;
    rotation.replace();
    rotation.revoke().await;
    let listens = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE usename = '{}' AND \
         (query ILIKE '%pg_notify($1%' OR query ILIKE '%virtualtransaction%')",
        rotation.next
    );
    eventually("it listens again", async || db.int(listens.clone()).await > 0).await;
    for n in 2..5 {
        db.publish("asleep", n).await;
        assert_eq!(rotation.probe.start().await.n, n);
    }
    db.drained().await;
    rotation.end().await;
}

async fn what_a_handler_came_to_is_kept_until_there_are_credentials_again(db: &Db) {
    let rotation = Rotation::new(db).await;
    rotation.revoke().await;
    rotation.probe.let_end(10);
    let old = rotation.granted.roles.consumer.clone();
    eventually("it could not be written", async || {
        let tried = |line: &capture::Line| {
            let text = line.text();
            text.contains("settl") && text.contains(&old)
        };
        capture::count(tried) > 0
    })
    .await;
    assert_eq!(db.rows().await, 1);
    rotation.replace();
    db.drained().await;
    assert!(rotation.probe.more().await.is_empty(), "it ran once");
    rotation.end().await;
}
