//! Publishers notify only if somebody sleeps. Whoever falls asleep finds what was
//! published before they knew; polls are an hour away.

use outbox::{Outgoing, Publisher, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe::Probe;
use outbox_tests::wait::{eventually, soon};
use sqlx::postgres::PgListener;
use tokio::time::sleep;

use super::{SECOND, free, gated};

on_postgres!(
    while_the_only_subscriber_is_busy_nobody_is_notified,
    a_message_published_while_it_was_busy_and_committed_when_it_sleeps_is_handled,
    a_message_published_while_nobody_listened_and_committed_later_is_handled,
    a_message_published_before_another_queue_fell_asleep_under_the_same_lock_is_handled,
    a_process_that_sleeps_is_woken_while_another_is_busy,
    a_subscriber_of_a_table_where_others_listen_counts_as_asleep,
    whoever_keeps_the_locks_of_sleepers_costs_no_connection,
);

/// Somebody sleeps, as publishers see it. Claims and publishers have locks for themselves.
const SLEEPERS: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
    AND mode = 'ShareLock'
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

async fn sleepers(db: &Db, count: i64) {
    eventually("sleepers are as many", async || db.int(SLEEPERS).await == count).await;
}

/// The queue that is notified of next, whatever the listener sends itself.
async fn heard(listener: &mut PgListener) -> String {
    loop {
        let heard = soon("a notification", listener.recv()).await.unwrap();
        if !heard.payload().contains("probe") {
            return heard.payload().to_owned();
        }
    }
}

/// More to do than its only worker can, until so many may end.
async fn busy(db: &Db) -> (Subscriber, Probe) {
    busy_with(db, "q").await
}

async fn busy_with(db: &Db, queue: &'static str) -> (Subscriber, Probe) {
    db.send_all((0..3000).map(|n| Outgoing::new(queue, &n))).await;
    let (subscriber, probe) = gated(queue);
    (subscriber.max_workers(1), probe)
}

/// A queue that shares the lock of the queue `q`.
const TWIN: &str = "twin 37";

/// Ends its runs one by one, until publishers need not wake it.
async fn wake_up(db: &Db, probe: &Probe) {
    sleepers(db, 1).await;
    eventually("it stays awake", async || {
        probe.let_end(1);
        db.int(SLEEPERS).await == 0
    })
    .await;
}

async fn while_the_only_subscriber_is_busy_nobody_is_notified(db: &Db) {
    let (subscriber, probe) = busy(db).await;
    let running = db.app().only([subscriber]).start().await.unwrap();
    let mut listener = PgListener::connect_with(db.pg()).await.unwrap();
    listener.listen(&db.names.channel()).await.unwrap();
    sleepers(db, 1).await;
    db.publish("q", 3000).await;
    assert_eq!(heard(&mut listener).await, "q");
    wake_up(db, &probe).await;
    db.publish("q", 3001).await;
    db.exec("NOTIFY outbox_outbox, 'end'").await;
    assert_eq!(heard(&mut listener).await, "end");
    probe.let_end(10_000);
    db.drained().await;
    sleepers(db, 1).await;
    db.publish("q", 3002).await;
    assert_eq!(heard(&mut listener).await, "q");
    db.drained().await;
    running.stop().await.unwrap();
}

async fn a_message_published_while_it_was_busy_and_committed_when_it_sleeps_is_handled(db: &Db) {
    let (subscriber, probe) = busy(db).await;
    let running = db.app().only([subscriber]).start().await.unwrap();
    wake_up(db, &probe).await;
    let mut tx = db.pg().begin().await.unwrap();
    Publisher::new(db.names.clone()).publish(&mut tx, "q", &3000).await.unwrap();
    assert_eq!(db.int(SLEEPERS).await, 0, "it is not notified of");
    probe.let_end(10_000);
    db.drained().await;
    sleepers(db, 1).await;
    probe.more().await;
    tx.commit().await.unwrap();
    assert_eq!(probe.start().await.n, 3000);
    db.drained().await;
    running.stop().await.unwrap();
}

async fn a_message_published_while_nobody_listened_and_committed_later_is_handled(db: &Db) {
    let mut tx = db.pg().begin().await.unwrap();
    Publisher::new(db.names.clone()).publish(&mut tx, "q", &7).await.unwrap();
    let (subscriber, probe) = free("q");
    let running = db.app().only([subscriber]).start().await.unwrap();
    sleepers(db, 1).await;
    tx.commit().await.unwrap();
    assert_eq!(probe.start().await.n, 7);
    db.drained().await;
    running.stop().await.unwrap();
}

async fn a_message_published_before_another_queue_fell_asleep_under_the_same_lock_is_handled(
    db: &Db,
) {
    let ((first, one), (second, twin)) = (busy(db).await, busy_with(db, TWIN).await);
    let running = db.app().only([first, second]).start().await.unwrap();
    sleepers(db, 1).await;
    eventually("both stay awake", async || {
        one.let_end(1);
        twin.let_end(1);
        db.int(SLEEPERS).await == 0
    })
    .await;
    let mut tx = db.pg().begin().await.unwrap();
    Publisher::new(db.names.clone()).publish(&mut tx, TWIN, &3000).await.unwrap();
    assert_eq!(db.int(SLEEPERS).await, 0, "it is not notified of");
    let left =
        async |queue| db.int(format!("SELECT count(*) FROM outbox WHERE queue = '{queue}'")).await;
    one.let_end(10_000);
    eventually("one has nothing to do", async || left("q").await == 0).await;
    sleepers(db, 1).await;
    twin.let_end(10_000);
    eventually("nor has the other", async || left(TWIN).await == 0).await;
    twin.more().await;
    // It stays awake for half a second, and nobody can see that it sleeps: the lock is held.
    sleep(2 * SECOND).await;
    tx.commit().await.unwrap();
    soon("it is handled", async { while twin.start().await.n != 3000 {} }).await;
    running.stop().await.unwrap();
}

async fn a_process_that_sleeps_is_woken_while_another_is_busy(db: &Db) {
    let (subscriber, probe) = busy(db).await;
    let one = db.app().only([subscriber]).start().await.unwrap();
    wake_up(db, &probe).await;
    let (subscriber, other) = free("other");
    let two = db.app().only([subscriber]).start().await.unwrap();
    sleepers(db, 1).await;
    other.falls_asleep(db, "other").await;
    db.publish("other", 7).await;
    assert_eq!(other.start().await.n, 7);
    probe.let_end(10_000);
    db.drained().await;
    one.stop().await.unwrap();
    two.stop().await.unwrap();
}

async fn a_subscriber_of_a_table_where_others_listen_counts_as_asleep(db: &Db) {
    let (subscriber, probe) = busy(db).await;
    let app = db.app().names(db.names.clone().always_notify());
    let running = app.only([subscriber]).start().await.unwrap();
    sleepers(db, 1).await;
    // Elsewhere a small part of it is enough to stay awake.
    for _ in 0..200 {
        probe.let_end(1);
        probe.start().await;
        sleep(SECOND / 100).await;
        assert_eq!(db.int(SLEEPERS).await, 1);
    }
    probe.let_end(10_000);
    db.drained().await;
    running.stop().await.unwrap();
}

/// Whoever may connect may lock these. A session that waits for a lock does not notice that its
/// client is gone.
async fn whoever_keeps_the_locks_of_sleepers_costs_no_connection(db: &Db) {
    let (mut subscriber, probe) = free("q");
    subscriber = subscriber.min_poll(SECOND / 10).max_poll(SECOND / 5);
    let running = db.app().only([subscriber.clone()]).start().await.unwrap();
    sleepers(db, 1).await;
    let lock = "SELECT classid::bigint << 32 | objid::bigint FROM pg_locks
        WHERE locktype = 'advisory' AND mode = 'ShareLock'
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let lock = db.int(lock).await;
    running.stop().await.unwrap();
    let mut squatter = db.pg().acquire().await.unwrap();
    sqlx::query("SELECT pg_advisory_lock($1)").bind(lock).execute(&mut *squatter).await.unwrap();
    let running = db.app().only([subscriber]).start().await.unwrap();
    db.publish("q", 7).await;
    probe.start().await;
    assert_eq!(running.health().check().await.listener_up, Some(false), "no wakes are heeded");
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    eventually("it waits", async || db.int(waiting).await == 1).await;
    sleep(12 * SECOND).await;
    running.stop().await.unwrap();
    eventually("nobody waits any more", async || db.int(waiting).await == 0).await;
    drop(squatter.detach());
    let running = db.app().only([free("q").0]).start().await.unwrap();
    sleepers(db, 1).await;
    running.stop().await.unwrap();
}
