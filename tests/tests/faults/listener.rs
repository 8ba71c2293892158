//! The connection that listens is closed by the other side, reset, or its route is gone:
//! messages are found meanwhile, and wakes come again.

use std::process::Command;
use std::time::Duration;

use outbox::App;
use outbox_tests::backend::{skip, unique};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe::{Probe, free};
use outbox_tests::proxy::Proxy;
use outbox_tests::wait::eventually;
use sqlx::postgres::PgPoolOptions;
use tokio::time::{Instant, timeout};

use super::{HOUR, OFTEN, publish};

on_postgres!(
    a_listener_that_is_reset_twenty_times_is_replaced_each_time,
    a_half_closed_listener_is_replaced,
    a_listener_behind_a_dropped_route_is_found_out_while_polling_goes_on,
);

const LISTENS: &str = "FROM pg_stat_activity WHERE datname = current_database() AND \
    application_name = 'engine' AND state = 'idle' AND \
    (query ILIKE '%pg_notify($1%' OR query ILIKE '%virtualtransaction%')";

/// What `asleep` handles, it was woken for; `polling` looks by itself.
struct Behind {
    proxy: Proxy,
    running: outbox::RunningApp,
    asleep: Probe,
    polling: Probe,
}

async fn behind_a_proxy(db: &Db) -> Behind {
    let proxy = Proxy::before(db).await;
    let (sleeper, asleep) = free("asleep", "asleep");
    let (poller, polling) = free("polling", "polling");
    let sleeper = sleeper.min_poll(HOUR).max_poll(HOUR).lease_ttl(HOUR);
    let pool = PgPoolOptions::new().connect_lazy_with(proxy.options(db));
    let app = App::postgres(pool).names(db.names.clone());
    let app = app.only([sleeper, poller.min_poll(OFTEN).max_poll(OFTEN)]);
    let running = app.start().await.unwrap();
    let behind = Behind { proxy, running, asleep, polling };
    behind.listens_by(db, 1).await;
    behind
}

impl Behind {
    /// Waits until somebody listens, on no connection before the `count`th.
    async fn listens_by(&self, db: &Db, count: usize) {
        eventually("it listens", async || {
            self.proxy.listeners() >= count
                && db.int(format!("SELECT count(*) {LISTENS}")).await >= 1
        })
        .await;
    }

    async fn is_woken(&self, db: &Db, n: i64) {
        publish(db, "asleep", [n]).await;
        assert_eq!(self.asleep.start().await.n, n);
    }

    /// Ends the connection that listens, and waits for the next.
    async fn without_listener(&self, db: &Db, n: i64, end: impl Fn(&Proxy)) {
        let so_far = self.proxy.listeners();
        end(&self.proxy);
        publish(db, "polling", [n]).await;
        assert_eq!(self.polling.start().await.n, n);
        self.listens_by(db, so_far + 1).await;
    }
}

/// The wait before another try doubles with each loss, so it is ended twenty times in all.
async fn a_listener_that_is_reset_twenty_times_is_replaced_each_time(db: &Db) {
    for round in 0..5 {
        let behind = behind_a_proxy(db).await;
        for n in 0..4 {
            behind.is_woken(db, round * 10 + n).await;
            behind.without_listener(db, n, Proxy::reset_listeners).await;
        }
        behind.is_woken(db, round * 10 + 9).await;
        behind.running.stop().await.unwrap();
    }
}

async fn a_half_closed_listener_is_replaced(db: &Db) {
    let behind = behind_a_proxy(db).await;
    for n in 0..4 {
        behind.is_woken(db, n).await;
        behind.without_listener(db, n, Proxy::half_close_listeners).await;
    }
    behind.is_woken(db, 9).await;
    behind.running.stop().await.unwrap();
}

/// Drops what goes between two ports, until dropped itself.
struct Dropped(String);

impl Dropped {
    /// `None`, after a line that says so, where that is not permitted.
    fn between(port: i64, other: i64) -> Option<Self> {
        let table = unique("outbox_route");
        let rules = format!(
            "table inet {table} {{ chain c {{ type filter hook input priority 0; \
             tcp sport {port} tcp dport {other} drop; \
             tcp sport {other} tcp dport {port} drop; }}; }}"
        );
        match Command::new("nft").arg(rules).output() {
            Ok(done) if done.status.success() => Some(Self(table)),
            other => {
                skip("nft", &format!("packets cannot be dropped here: {other:?}"));
                None
            }
        }
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = Command::new("nft").args(["delete", "table", "inet", &self.0]).status();
    }
}

/// Its backend dies too, and nobody hears of that: without a sign of life it would be
/// waited for without an end. Where packets cannot be dropped, a proxy that swallows them
/// shows the same: `a_deaf_listener_is_found_out_while_polling_goes_on`.
async fn a_listener_behind_a_dropped_route_is_found_out_while_polling_goes_on(db: &Db) {
    let (sleeper, asleep) = free("asleep", "asleep");
    let (poller, polling) = free("polling", "polling");
    let sleeper = sleeper.min_poll(HOUR).max_poll(HOUR).lease_ttl(HOUR);
    let app = db.app().only([sleeper, poller.min_poll(OFTEN).max_poll(OFTEN)]);
    let running = app.start().await.unwrap();
    eventually("it listens", async || db.int(format!("SELECT count(*) {LISTENS}")).await == 1)
        .await;
    publish(db, "asleep", [1]).await;
    assert_eq!(asleep.start().await.n, 1);
    let port = db.int(format!("SELECT client_port::bigint {LISTENS}")).await;
    // Others may have a connection from such a port, to another server.
    let server = db.int("SELECT inet_server_port()::bigint").await;
    let Some(route) = Dropped::between(port, server) else {
        return running.stop().await.unwrap();
    };
    let begun = Instant::now();
    assert_eq!(db.int(format!("SELECT count(pg_terminate_backend(pid)) {LISTENS}")).await, 1);
    publish(db, "asleep", [2]).await;
    for n in 0..20 {
        publish(db, "polling", [n]).await;
        assert_eq!(polling.start().await.n, n);
    }
    // Longer than a listener may stay silent, and the test of it.
    let run = timeout(Duration::from_secs(120), asleep.start_ever()).await;
    assert_eq!(run.expect("the listener is found out").n, 2);
    assert!(begun.elapsed() > Duration::from_secs(20), "nobody can have told it");
    publish(db, "asleep", [3]).await;
    assert_eq!(asleep.start().await.n, 3);
    drop(route);
    running.stop().await.unwrap();
}
