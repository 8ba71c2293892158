//! How late a message is whose wake is lost: as late as the next poll, or until somebody
//! listens again, and no later.

use std::time::Duration;

use outbox::{App, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe::{self, Probe};
use outbox_tests::proxy::Proxy;
use outbox_tests::wait::eventually;
use sqlx::postgres::PgPoolOptions;
use tokio::time::{Instant, sleep};

use super::{SECOND, free};

on_postgres!(
    a_lost_wake_costs_the_poll_interval_at_most,
    fifty_messages_while_the_listener_is_killed_are_all_handled_within_a_second,
);

const POLL: Duration = Duration::from_secs(2);
/// What a busy machine adds to a poll and a claim.
const SLACK: Duration = Duration::from_secs(1);
/// Before the listener is tested: a frozen one is found out then.
const MESSAGES: i64 = 3;
/// Who listens, by what it said last.
const LISTENS: &str = "FROM pg_stat_activity WHERE datname = current_database() \
    AND application_name = 'engine' AND state = 'idle' \
    AND (query ILIKE '%pg_notify($1%' OR query ILIKE '%virtualtransaction%')";

/// It looks no more often than it may wait at most.
fn rarely(queue: &str) -> (Subscriber, Probe) {
    let (subscriber, probe) = probe::free("rarely", queue);
    (subscriber.min_poll(POLL).max_poll(POLL), probe)
}

/// Each is published right after a look that found the one before it, so that it waits for
/// nearly all of the time between two.
async fn waits(db: &Db, queue: &str, probe: &Probe) -> Vec<Duration> {
    let mut waits = Vec::new();
    for n in 0..MESSAGES {
        let begun = Instant::now();
        db.publish(queue, n).await;
        let run = probe.start().await;
        assert_eq!(run.n, n);
        waits.push(run.at - begun);
        let gone = format!("SELECT count(*) FROM outbox WHERE queue = '{queue}'");
        eventually("it is settled", async || db.int(&gone).await == 0).await;
    }
    waits
}

/// On a connection that is open, and on which nothing comes any more.
async fn frozen(db: &Db) -> Vec<Duration> {
    let proxy = Proxy::before(db).await;
    let (subscriber, probe) = rarely("frozen");
    let pool = PgPoolOptions::new().connect_lazy_with(proxy.options(db));
    let app = App::postgres(pool).names(db.names.clone()).only([subscriber]);
    let running = app.start().await.unwrap();
    // Heard of at once: it listens, and what it looks for from now on nobody tells.
    eventually("it listens", async || proxy.listeners() == 1).await;
    db.publish("frozen", -1).await;
    assert_eq!(probe.start().await.n, -1);
    // Until it asks for nothing more on that connection: an answer would be missed after 5 s.
    sleep(SECOND).await;
    proxy.freeze_listeners();
    let waits = waits(db, "frozen", &probe).await;
    assert_eq!(proxy.listeners(), 1, "nobody has listened anew");
    running.stop().await.unwrap();
    waits
}

/// Of publishers that notify nobody.
async fn never(db: &Db) -> Vec<Duration> {
    let db = db.named(db.names.clone().never_notify());
    let (subscriber, probe) = rarely("never");
    let running = db.app().only([subscriber]).start().await.unwrap();
    let waits = waits(&db, "never", &probe).await;
    running.stop().await.unwrap();
    waits
}

async fn a_lost_wake_costs_the_poll_interval_at_most(db: &Db) {
    let in_time = |waits: &[Duration]| waits.iter().all(|wait| *wait <= POLL + SLACK);
    let (mut slow, mut none) = tokio::join!(frozen(db), never(db));
    // Once more: a moment in which the machine does something else proves nothing.
    if !in_time(&slow) {
        slow = frozen(db).await;
    }
    if !in_time(&none) {
        none = never(db).await;
    }
    for (what, waits) in [("frozen", slow), ("never", none)] {
        println!("{what}: {waits:.2?}");
        assert!(in_time(&waits), "{what}: {waits:?}");
        assert!(waits.iter().any(|wait| *wait >= POLL / 2), "somebody was told: {waits:?}");
    }
}

const FIFTY: i64 = 50;
const SOON: Duration = SECOND;

/// When each of them was published, and with what they came.
async fn publish(db: &Db, numbers: std::ops::Range<i64>, gap: Duration) -> Vec<(i64, Instant)> {
    let mut published = Vec::new();
    for n in numbers {
        let at = Instant::now();
        db.publish("q", n).await;
        published.push((n, at));
        sleep(gap).await;
    }
    published
}

/// Ten before the listener is killed, and forty after it: at once, so that most are
/// committed while nobody listens, or by and by, until long after somebody does again. How
/// late the last one was.
async fn killed(db: &Db, gap: Duration) -> Duration {
    let (subscriber, probe) = free("q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    let listener = format!("SELECT coalesce(max(pid), 0)::bigint {LISTENS}");
    eventually("it listens", async || db.int(&listener).await > 0).await;
    db.publish("q", -1).await;
    assert_eq!(probe.start().await.n, -1);
    db.open_all().await;
    let killed = db.int(&listener).await;
    let mut published = publish(db, 0..10, Duration::ZERO).await;
    db.exec(format!("SELECT pg_terminate_backend({killed})")).await;
    let ten = |from: i64| publish(db, from..from + 10, gap);
    let (a, b, c, d) = tokio::join!(ten(10), ten(20), ten(30), ten(40));
    published.extend([a, b, c, d].concat());
    let mut late = Vec::new();
    for _ in 0..FIFTY {
        // Sooner than the listener is tested, after which there is a look as well.
        let run = probe.start().await;
        let (_, at) = published.iter().find(|(n, _)| *n == run.n).unwrap();
        late.push(run.at - *at);
    }
    late.sort_unstable();
    println!("every {gap:?}: half within {:?}, all within {:?}", late[25], late[49]);
    eventually("another one listens", async || ![0, killed].contains(&db.int(&listener).await))
        .await;
    db.drained().await;
    assert!(probe.more().await.is_empty(), "each was handled once");
    running.stop().await.unwrap();
    late[49]
}

/// Whoever polls once an hour is told by the listener, or by what follows each new one.
async fn fifty_messages_while_the_listener_is_killed_are_all_handled_within_a_second(db: &Db) {
    for gap in [0, 20].map(Duration::from_millis) {
        // The better of two: a moment in which the machine does something else spoils one.
        let (one, other) = (killed(db, gap).await, killed(db, gap).await);
        assert!(one.min(other) <= SOON, "every {gap:?}: {one:?}, {other:?}");
    }
}
