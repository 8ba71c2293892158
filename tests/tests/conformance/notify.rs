//! One notification a transaction and queue, when it commits, if somebody sleeps.

use std::time::Duration;

use outbox::schema::migrate_tables;
use outbox::testing::store::{Release, Store, Wakes, ack_publishing};
use outbox::{Outgoing, TableNames, TimerConflict};
use outbox_tests::backend::sleepers;
use outbox_tests::wait::soon;
use sqlx::postgres::PgListener;
use sqlx::{AssertSqlSafe, Executor};

use crate::bench::{Bench, Postgres, SqlBench, Steps, death, refenced};

const HOUR: Duration = Duration::from_secs(3600);

async fn listen_awake(b: &Postgres) -> PgListener {
    let mut listener = PgListener::connect_with(b.pool()).await.unwrap();
    listener.listen(&b.names().channel()).await.unwrap();
    listener
}

/// Holds the locks of those who sleep, as anybody may who listens.
async fn listen(b: &Postgres) -> PgListener {
    let mut listener = listen_awake(b).await;
    let locks = sleepers(&b.names().channel());
    let locks = format!("SELECT pg_advisory_lock_shared(lock) FROM ({locks}) AS given");
    listener.execute(AssertSqlSafe(locks)).await.unwrap();
    listener
}

/// With a channel of its own.
async fn with_channel(b: &Postgres, set: fn(TableNames) -> TableNames) -> Postgres {
    let names = TableNames::new(outbox_tests::backend::unique("own")).unwrap();
    let other = b.with_names(set(names.in_schema(b.schema()).unwrap()));
    migrate_tables(other.pool(), other.names()).await.unwrap();
    other
}

/// In every way.
async fn publish_and_extend(b: &Postgres) {
    let timer = |queue| message(b, queue).timer_id("t").delay(HOUR);
    let extending = |queue| timer(queue).delay(2 * HOUR).on_conflict(TimerConflict::Extend);
    b.send(message(b, "plain")).await;
    b.send(message(b, "später").delay(HOUR)).await;
    b.send(timer("timer")).await;
    b.send(extending("timer")).await;
    b.send_batch(vec![message(b, "batch"), message(b, "batch")]).await;
    b.send_batch(vec![message(b, "eins"), message(b, "zwölf")]).await;
    b.send_batch(vec![timer("timers"), extending("timer").delay(3 * HOUR)]).await;
    let queue = format!("{}plain", b.schema());
    let ack = [(b.take(&queue).await, vec![message(b, "returned")])];
    ack_publishing(b.store(), b.publisher(), ack).await.unwrap();
}

async fn nobody_is_notified_while_nobody_sleeps(b: Postgres) {
    let b = with_channel(&b, |names| names).await;
    let mut listener = listen_awake(&b).await;
    publish_and_extend(&b).await;
    assert!(heard(&b, &mut listener).await.is_empty());
}

async fn a_publisher_leaves_no_lock_behind(b: Postgres) {
    let b = with_channel(&b, |names| names).await;
    publish_and_extend(&b).await;
    let mut tx = b.begin().await;
    b.publisher().send(&mut tx, message(&b, "q")).await.unwrap();
    let locks = format!(
        "SELECT count(*) FROM pg_locks, ({}) AS given
        WHERE locktype = 'advisory' AND classid::bigint << 32 | objid::bigint = given.lock",
        sleepers(&b.names().channel())
    );
    assert_eq!(b.number(&locks).await, 0);
    let sleeper = listen(&b).await;
    assert_eq!(b.number(&locks).await, 64);
    drop(sleeper);
    b.rollback(tx).await;
}

/// The queues that hear of [`publish_and_extend`].
const PUBLISHED: [&str; 10] =
    ["batch", "eins", "plain", "returned", "später", "timer", "timer", "timer", "timers", "zwölf"];

async fn where_others_listen_every_publish_notifies(b: Postgres) {
    let b = with_channel(&b, TableNames::always_notify).await;
    let mut listener = listen_awake(&b).await;
    publish_and_extend(&b).await;
    let mut queues = heard(&b, &mut listener).await;
    queues.sort();
    assert_eq!(queues, PUBLISHED);
}

/// Of some statements the library says the lock's name, others make it of the queue.
async fn who_sleeps_is_notified_of_its_own_queues(b: Postgres) {
    let b = with_channel(&b, |names| names).await;
    let mut listener = listen_awake(&b).await;
    let mut wakes = b.store().listen().await.unwrap();
    let queues = PUBLISHED.map(|queue| format!("{}{queue}", b.schema()));
    wakes.sleep_on(&queues.each_ref().map(String::as_str)).await.unwrap();
    publish_and_extend(&b).await;
    let mut queues = heard(&b, &mut listener).await;
    queues.sort();
    assert_eq!(queues, PUBLISHED);
    wakes.sleep_on(&[]).await.unwrap();
    b.send(message(&b, "plain")).await;
    assert!(heard(&b, &mut listener).await.is_empty());
}

async fn who_never_notifies_wakes_nobody(b: Postgres) {
    let b = with_channel(&b, TableNames::never_notify).await;
    let mut listener = listen(&b).await;
    publish_and_extend(&b).await;
    assert!(heard(&b, &mut listener).await.is_empty());
}

/// Queues that were notified so far. Schemas share the channel, so only queues of
/// this case count: they start with its schema's name. Notifications come in
/// order of commit: the last one is our own.
async fn heard(b: &Postgres, listener: &mut PgListener) -> Vec<String> {
    let end = format!("{}:end", b.schema());
    sqlx::query("SELECT pg_notify($1, $2)")
        .bind(b.names().channel())
        .bind(&end)
        .execute(b.pool())
        .await
        .unwrap();
    let mut queues = Vec::new();
    loop {
        let heard = soon("a notification", listener.recv()).await.unwrap();
        let queue = heard.payload().to_owned();
        if queue == end {
            return queues;
        }
        if let Some(queue) = queue.strip_prefix(b.schema()) {
            queues.push(queue.to_owned());
        }
    }
}

fn message(b: &Postgres, queue: &str) -> Outgoing {
    Outgoing::new(format!("{}{queue}", b.schema()), &1)
}

async fn a_commit_notifies_its_queue(b: Postgres) {
    let mut listener = listen(&b).await;
    b.send(message(&b, "q")).await;
    assert_eq!(heard(&b, &mut listener).await, ["q"]);
}

async fn many_messages_of_a_transaction_notify_once(b: Postgres) {
    let mut listener = listen(&b).await;
    let mut tx = b.begin().await;
    for queue in ["x", "y", "x", "y", "x"] {
        b.publisher().send(&mut tx, message(&b, queue)).await.unwrap();
    }
    let batch = ["x", "x", "y"].map(|queue| message(&b, queue));
    b.publisher().publish_batch(&mut tx, batch).await.unwrap();
    let timers = ["x", "y"].map(|queue| message(&b, queue).timer_id("t"));
    b.publisher().publish_batch(&mut tx, timers).await.unwrap();
    b.commit(tx).await;
    assert_eq!(heard(&b, &mut listener).await, ["x", "y"]);
}

async fn each_transaction_notifies(b: Postgres) {
    let mut listener = listen(&b).await;
    b.send(message(&b, "q")).await;
    b.send(message(&b, "q")).await;
    assert_eq!(heard(&b, &mut listener).await, ["q", "q"]);
}

async fn a_batch_notifies_each_queue_once(b: Postgres) {
    let mut listener = listen(&b).await;
    b.send_batch(["x", "y", "x", "y"].map(|queue| message(&b, queue)).into()).await;
    let mut queues = heard(&b, &mut listener).await;
    queues.sort();
    assert_eq!(queues, ["x", "y"]);
}

async fn a_rollback_notifies_nobody(b: Postgres) {
    let mut listener = listen(&b).await;
    let mut tx = b.begin().await;
    b.publisher().send(&mut tx, message(&b, "q")).await.unwrap();
    b.publisher().publish_batch(&mut tx, [message(&b, "q")]).await.unwrap();
    b.rollback(tx).await;
    assert!(heard(&b, &mut listener).await.is_empty());
}

async fn nothing_is_notified_before_the_commit(b: Postgres) {
    let mut listener = listen(&b).await;
    let mut tx = b.begin().await;
    b.publisher().send(&mut tx, message(&b, "q")).await.unwrap();
    assert!(heard(&b, &mut listener).await.is_empty());
    b.commit(tx).await;
    assert_eq!(heard(&b, &mut listener).await, ["q"]);
}

async fn a_savepoint_rollback_takes_its_notification(b: Postgres) {
    let mut listener = listen(&b).await;
    let mut tx = b.begin().await;
    let mark = b.savepoint(&mut tx).await;
    b.publisher().send(&mut tx, message(&b, "lost")).await.unwrap();
    b.publisher().send(&mut tx, message(&b, "again")).await.unwrap();
    b.rollback_to(&mut tx, &mark).await;
    b.publisher().send(&mut tx, message(&b, "again")).await.unwrap();
    b.commit(tx).await;
    assert_eq!(heard(&b, &mut listener).await, ["again"]);
}

async fn a_duplicate_notifies_nobody(b: Postgres) {
    let timer = || message(&b, "q").timer_id("t");
    b.send(timer()).await;
    let mut listener = listen(&b).await;
    b.send(timer()).await;
    b.send_batch(vec![timer()]).await;
    let queue = format!("{}q", b.schema());
    b.claim(&[&queue], 1).await;
    b.send(timer().on_conflict(TimerConflict::Extend)).await;
    b.send_batch(vec![timer().on_conflict(TimerConflict::Extend)]).await;
    assert!(heard(&b, &mut listener).await.is_empty());
}

/// A reader that sleeps until its next due row has to hear of an earlier one.
async fn a_future_row_notifies_too(b: Postgres) {
    let mut listener = listen(&b).await;
    b.send(message(&b, "x").delay(HOUR)).await;
    b.send(message(&b, "y").timer_id("t").delay(HOUR)).await;
    b.send_batch(vec![message(&b, "z").delay(HOUR)]).await;
    assert_eq!(heard(&b, &mut listener).await, ["x", "y", "z"]);
}

async fn a_timer_notifies_when_it_is_set_and_moved(b: Postgres) {
    let mut listener = listen(&b).await;
    let timer = |queue: &str, delay| message(&b, queue).timer_id("t").delay(delay);
    let extending = |queue: &str, delay| timer(queue, delay).on_conflict(TimerConflict::Extend);
    b.send(timer("set", HOUR)).await;
    b.send(extending("set too", HOUR)).await;
    b.send(extending("set", HOUR * 2)).await;
    b.send_batch(vec![timer("in a batch", HOUR)]).await;
    b.send_batch(vec![extending("in a batch", HOUR * 2)]).await;
    let expected = ["set", "set too", "set", "in a batch", "in a batch"];
    assert_eq!(heard(&b, &mut listener).await, expected);
}

async fn settles_notify_nobody(b: Postgres) {
    b.send(message(&b, "q")).await;
    let mut listener = listen(&b).await;
    let queue = format!("{}q", b.schema());
    let lease = b.take(&queue).await;
    b.store().retry(&[crate::bench::retry(lease, Duration::ZERO)]).await.unwrap();
    let lease = b.take(&queue).await;
    let release = Release { lease, due_in: None, uncount: 0, claimed_at: None };
    b.store().release(&[release]).await.unwrap();
    let lease = b.take(&queue).await;
    b.store().bury(&[death(lease)]).await.unwrap();
    b.send(message(&b, "end")).await;
    assert_eq!(heard(&b, &mut listener).await, ["end"]);
}

async fn an_ack_notifies_for_what_it_publishes(b: Postgres) {
    let queue = format!("{}q", b.schema());
    b.put_many(&queue, 2).await;
    let held = b.take_many(&queue, 2).await;
    let mut listener = listen(&b).await;
    let acks = held.iter().map(|&lease| (lease, ["x", "y", "x"].map(|to| message(&b, to)).into()));
    ack_publishing(b.store(), b.publisher(), acks).await.unwrap();
    let mut queues = heard(&b, &mut listener).await;
    queues.sort();
    assert_eq!(queues, ["x", "y"]);
}

async fn an_ack_that_publishes_nothing_notifies_nobody(b: Postgres) {
    let timer = || message(&b, "timers").timer_id("t").delay(HOUR);
    b.send(timer()).await;
    let queue = format!("{}q", b.schema());
    b.put(&queue).await;
    let lease = b.take(&queue).await;
    let mut listener = listen(&b).await;
    for (lease, landed) in [(refenced(lease), false), (lease, true)] {
        let ack = [(lease, vec![timer()])];
        assert_eq!(ack_publishing(b.store(), b.publisher(), ack).await.unwrap(), [landed]);
    }
    assert!(heard(&b, &mut listener).await.is_empty());
}

cases! {
    postgres only, "only PostgreSQL notifies":
    a_commit_notifies_its_queue,
    many_messages_of_a_transaction_notify_once,
    each_transaction_notifies,
    a_batch_notifies_each_queue_once,
    a_rollback_notifies_nobody,
    nothing_is_notified_before_the_commit,
    a_savepoint_rollback_takes_its_notification,
    a_duplicate_notifies_nobody,
    a_future_row_notifies_too,
    a_timer_notifies_when_it_is_set_and_moved,
    settles_notify_nobody,
    an_ack_notifies_for_what_it_publishes,
    nobody_is_notified_while_nobody_sleeps,
    a_publisher_leaves_no_lock_behind,
    where_others_listen_every_publish_notifies,
    who_sleeps_is_notified_of_its_own_queues,
    who_never_notifies_wakes_nobody,
    an_ack_that_publishes_nothing_notifies_nobody,
}
