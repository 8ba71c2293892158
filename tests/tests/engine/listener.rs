//! Wakes are hints on a connection that may die or go deaf: the app hears of it,
//! listens anew, and misses nothing meanwhile.

use std::time::Duration;

use outbox::App;
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe;
use outbox_tests::proxy::Proxy;
use outbox_tests::wait::eventually;
use sqlx::postgres::PgPoolOptions;
use tokio::time::{Instant, sleep, timeout};

use super::free;

on_postgres!(
    a_killed_listener_is_replaced_and_what_it_missed_is_fetched,
    a_listener_that_is_killed_again_and_again_is_replaced,
    who_drops_each_listener_at_once_is_asked_for_one_ever_less_often,
    killing_every_connection_loses_nothing_and_settles_nothing_twice,
    a_deaf_listener_is_found_out_while_polling_goes_on,
    connections_that_go_silent_are_replaced,
    a_ping_over_a_silent_connection_is_bounded,
);

const ENGINE: &str =
    "FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'engine'";
const LISTENER: &str = "AND (query ILIKE '%pg_notify($1%' OR query ILIKE '%virtualtransaction%')";

async fn kill(db: &Db, which: &str) -> i64 {
    db.int(format!("SELECT count(pg_terminate_backend(pid)) {ENGINE} {which}")).await
}

/// While it does something else than listen it is not known by what it said last.
async fn kill_listener(db: &Db) {
    eventually("the listener is killed", async || kill(db, LISTENER).await == 1).await;
}

async fn listening(db: &Db) {
    eventually("the app listens", async || {
        db.int(format!("SELECT count(*) {ENGINE} {LISTENER} AND state = 'idle'")).await == 1
    })
    .await;
}

/// While the app cannot connect, a message is published: no notification tells
/// of it, only the look that follows every new connection.
async fn a_killed_listener_is_replaced_and_what_it_missed_is_fetched(db: &Db) {
    let (subscriber, probe) = free("q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    listening(db).await;
    db.open_all().await;
    db.allow_connections(false).await;
    kill_listener(db).await;
    eventually("it is gone", async || {
        db.int(format!("SELECT count(*) {ENGINE} {LISTENER}")).await == 0
    })
    .await;
    db.publish("q", 1).await;
    db.allow_connections(true).await;
    assert_eq!(probe.start().await.n, 1);
    listening(db).await;
    db.publish("q", 2).await;
    assert_eq!(probe.start().await.n, 2);
    running.stop().await.unwrap();
}

async fn a_listener_that_is_killed_again_and_again_is_replaced(db: &Db) {
    let (subscriber, probe) = free("q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    for n in 0..4 {
        listening(db).await;
        kill_listener(db).await;
        db.publish("q", n).await;
        assert_eq!(probe.start().await.n, n);
    }
    running.stop().await.unwrap();
}

/// Only one that has held makes the next wait short again.
async fn who_drops_each_listener_at_once_is_asked_for_one_ever_less_often(db: &Db) {
    let running = db.app().only([free("q").0]).start().await.unwrap();
    let (begun, mut killed) = (Instant::now(), 0);
    while begun.elapsed() < Duration::from_secs(10) {
        killed += kill(db, LISTENER).await;
        sleep(Duration::from_millis(20)).await;
    }
    running.stop().await.unwrap();
    // After a tenth of a second, twice that, and so on up to 1.5 s.
    assert!((4..=20).contains(&killed), "{killed}");
}

async fn killing_every_connection_loses_nothing_and_settles_nothing_twice(db: &Db) {
    db.exec("CREATE TABLE gone (id bigint)").await;
    db.exec(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
         'BEGIN INSERT INTO gone VALUES (OLD.id); RETURN NULL; END'",
    )
    .await;
    db.exec("CREATE TRIGGER note AFTER DELETE ON outbox FOR EACH ROW EXECUTE FUNCTION note()")
        .await;
    let (subscriber, probe) = free("q");
    // What a killed claim took without telling comes back soon.
    let subscriber = subscriber.lease_ttl(Duration::from_secs(2)).fetch_batch(3).max_workers(2);
    let running = db.app().only([subscriber]).start().await.unwrap();
    for round in 0..6 {
        for n in round * 20..(round + 1) * 20 {
            db.publish("q", n).await;
        }
        probe.start().await;
        eventually("there is a connection to kill", async || kill(db, "").await > 0).await;
    }
    db.drained().await;
    let mut seen: Vec<i64> = probe.more().await.iter().map(|run| run.n).collect();
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() >= 114, "six were taken note of above: {seen:?}");
    assert_eq!(db.int("SELECT count(*) FROM gone").await, 120);
    assert_eq!(db.int("SELECT count(DISTINCT id) FROM gone").await, 120);
    assert_eq!(db.letters().await, 0);
    running.stop().await.unwrap();
}

/// Longer than a listener may stay silent before it is tested, and the test.
const FOUND_OUT: Duration = Duration::from_secs(120);

/// What a busy machine adds to a poll.
const SLACK: Duration = Duration::from_millis(500);

fn app_behind(proxy: &Proxy, db: &Db) -> App {
    let pool = PgPoolOptions::new().connect_lazy_with(proxy.options(db));
    App::postgres(pool).names(db.names.clone())
}

async fn a_deaf_listener_is_found_out_while_polling_goes_on(db: &Db) {
    let proxy = Proxy::before(db).await;
    let (sleeper, asleep) = free("asleep");
    let (poller, polling) = probe::free("polling", "polling");
    let poll = Duration::from_millis(250);
    let poller = poller.min_poll(poll).max_poll(poll);
    let running = app_behind(&proxy, db).only([sleeper, poller]).start().await.unwrap();
    listening(db).await;
    assert_eq!(proxy.listeners(), 1);
    db.publish("asleep", 1).await;
    assert_eq!(asleep.start().await.n, 1);

    proxy.freeze_listeners();
    // A claim may have been under way and found the first; none finds the second.
    let mut waits = Vec::new();
    for n in 2..4 {
        db.publish("asleep", n).await;
        for n in 0..5 {
            let begun = Instant::now();
            db.publish("polling", n).await;
            let run = polling.start().await;
            assert_eq!(run.n, n);
            waits.push(run.at - begun);
        }
    }
    waits.sort_unstable();
    // Not the longest: a moment in which the machine does something else proves nothing.
    assert!(waits[waits.len() / 2] < poll + SLACK, "half of them waited longer: {waits:?}");
    assert!(asleep.more().await.len() < 2, "nobody can have told it");
    let run = timeout(FOUND_OUT, asleep.start_ever()).await.expect("the listener is found out");
    assert_eq!(proxy.listeners(), 2);
    assert!((2..4).contains(&run.n));
    db.drained().await;
    asleep.more().await;
    db.publish("asleep", 4).await;
    assert_eq!(asleep.start().await.n, 4);
    running.stop().await.unwrap();
}

/// What all of them together may take, twice the limit of one statement.
const REPLACED: Duration = Duration::from_secs(60);

/// All of them at once, while all of them are in use: none may be waited for
/// longer than a statement may take.
async fn connections_that_go_silent_are_replaced(db: &Db) {
    let proxy = Proxy::before(db).await;
    let often = Duration::from_millis(10);
    let (subscribers, probes): (Vec<_>, Vec<_>) = ["a", "b", "c", "d", "e", "f", "g", "h"]
        .map(|queue| probe::free(queue, queue))
        .into_iter()
        .map(|(subscriber, probe)| (subscriber.min_poll(often).max_poll(often), probe))
        .unzip();
    let running = app_behind(&proxy, db).only(subscribers).start().await.unwrap();
    // One claims, and another one answers meanwhile.
    let lock = db.lock().await;
    db.engine_waits().await;
    running.ping().await.unwrap();
    lock.release().await;
    eventually("two claim, one listens", async || {
        db.int(format!("SELECT count(*) {ENGINE}")).await >= 3
    })
    .await;
    proxy.freeze_all();
    for queue in ["a", "b", "c", "d", "e", "f", "g", "h"] {
        db.publish(queue, 1).await;
    }
    for probe in &probes {
        let run = timeout(REPLACED, probe.start_ever()).await;
        assert_eq!(run.expect("the queue is read again").n, 1);
    }
    db.drained().await;
    running.stop().await.unwrap();
}

async fn a_ping_over_a_silent_connection_is_bounded(db: &Db) {
    let proxy = Proxy::before(db).await;
    let (subscriber, _) = free("q");
    let app = app_behind(&proxy, db).drain_timeout(Duration::from_secs(1));
    let running = app.only([subscriber]).start().await.unwrap();
    running.ping().await.unwrap();
    listening(db).await;
    // Green as long as there is room for another connection.
    let mut red = None;
    for _ in 0..10 {
        proxy.freeze_all();
        let limit = Duration::from_secs(10);
        red = timeout(limit, running.ping()).await.expect("ping answers").err();
        if red.is_some() {
            break;
        }
    }
    let red = red.expect("no room is left").to_string();
    assert!(red.contains("no answer within"), "{red}");
    // With a connection of its own again.
    eventually("ping is green", async || running.ping().await.is_ok()).await;
    // What it had frozen is not waited for either.
    timeout(Duration::from_secs(29), running.stop()).await.expect("the stop ends").unwrap();
}
