//! A transaction whose lease is lost counts for nothing, whoever took the row.

use std::sync::Arc;

use outbox::FromContext as _;
use outbox_tests::db::Db;
use outbox_tests::wait::{eventually, soon};
use outbox_tests::{on_both, on_postgres};
use tokio::sync::Notify;

use super::handlers::{Then, subscriber};
use super::*;

on_both!(
    a_transaction_five_times_as_long_as_the_lease_commits_once,
    a_lease_stolen_before_the_transaction_begins_means_rollback,
    an_error_after_a_transaction_longer_than_the_lease_is_retried_as_any_other,
    a_refused_commit_after_a_transaction_longer_than_the_lease_is_retried_as_any_other,
    what_a_batch_longer_than_its_leases_does_not_ack_is_retried_as_any_other,
);

on_postgres!(
    a_lease_stolen_before_the_ack_means_rollback,
    a_lease_stolen_while_the_handler_runs_cancels_it,
    no_row_is_locked_while_the_handler_runs,
    a_lease_that_is_extended_meanwhile_fails_no_ack_whatever_the_isolation,
    a_handler_may_choose_the_isolation_of_its_transaction,
    a_connection_that_dies_before_the_commit_leaves_the_message,
);

/// For so long that nobody takes it back.
const STEAL: &str = "UPDATE outbox SET acquired_token = gen_random_uuid(), \
                     acquired_at = clock_timestamp() + interval '1 hour' WHERE queue = 'q'";

/// Starts an app whose handler has written and waits.
async fn waiting(db: &Db, ttl: Duration) -> (outbox::RunningApp, outbox::Stats, Arc<Notify>) {
    with_domain(db).await;
    let (written, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let then = Then::Wait(Arc::clone(&written), Arc::clone(&go));
    let app = db.app().only([subscriber(db, then).lease_ttl(ttl)]);
    let stats = app.stats();
    let running = app.start().await.unwrap();
    db.publish("q", 7).await;
    soon("it has written", written.notified()).await;
    (running, stats, go)
}

/// The row is there and somebody else's; nothing was written.
async fn is_anothers(db: &Db) {
    assert_eq!((done(db).await, receipts(db).await, db.rows().await), (0, 0, 1));
    assert_eq!(db.leased().await, 1);
}

async fn a_lease_stolen_before_the_ack_means_rollback(db: &Db) {
    let (running, _, go) = waiting(db, 60 * SECOND).await;
    db.exec(STEAL).await;
    go.notify_one();
    running.stop().await.unwrap();
    is_anothers(db).await;
}

async fn a_lease_stolen_while_the_handler_runs_cancels_it(db: &Db) {
    let (running, _, _go) = waiting(db, SECOND).await;
    db.exec(STEAL).await;
    // Within a lease: the extension finds out.
    let inside = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                  AND application_name = 'engine' AND state LIKE 'idle in transaction%'";
    eventually("it was rolled back", async || db.int(inside).await == 0).await;
    is_anothers(db).await;
    let _ = running.stop().await;
}

async fn no_row_is_locked_while_the_handler_runs(db: &Db) {
    let (running, _, go) = waiting(db, 60 * SECOND).await;
    let free = "SELECT count(*) FROM (SELECT 1 FROM outbox WHERE queue = 'q' \
                FOR UPDATE SKIP LOCKED) AS free";
    assert_eq!(db.int(free).await, 1);
    go.notify_one();
    eventually("it commits", async || done(db).await == 1).await;
    running.stop().await.unwrap();
    assert_eq!(receipts(db).await, 1);
}

async fn a_connection_that_dies_before_the_commit_leaves_the_message(db: &Db) {
    let (running, stats, go) = waiting(db, 60 * SECOND).await;
    db.exec(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
         AND application_name = 'engine' AND state LIKE 'idle in transaction%'",
    )
    .await;
    go.notify_one();
    // Its next delivery is perhaps there already, and waits.
    eventually("it is given back", async || stats.subscribers()[0].snoozed == 1).await;
    let unspent = "SELECT count(*) FROM outbox WHERE attempts_count = 0 AND deliveries_count <= 1";
    assert_eq!(db.int(unspent).await, 1);
    assert_eq!((done(db).await, receipts(db).await), (0, 0));
    // It is put off, and succeeds.
    go.notify_one();
    eventually("it commits", async || done(db).await == 1).await;
    running.stop().await.unwrap();
    assert_eq!((receipts(db).await, db.rows().await), (1, 1));
}

/// The extension changes the row after the handler's first statement.
async fn a_lease_that_is_extended_meanwhile_fails_no_ack_whatever_the_isolation(db: &Db) {
    let name = db.texts("SELECT current_database()::text").await.remove(0);
    with_domain(db).await;
    for (n, level) in (1..).zip(["repeatable read", "serializable"]) {
        let set = format!("ALTER DATABASE {name} SET default_transaction_isolation = '{level}'");
        db.exec(set).await;
        let (written, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let then = Then::Wait(Arc::clone(&written), Arc::clone(&go));
        let app = db.app().only([subscriber(db, then).lease_ttl(15 * SECOND)]);
        let stats = app.stats();
        let running = app.start().await.unwrap();
        db.publish("q", 7).await;
        soon("it has written", written.notified()).await;
        let leased = "SELECT acquired_at::text FROM outbox WHERE queue = 'q'";
        let before = db.texts(leased).await;
        eventually("it is extended", async || db.texts(leased).await != before).await;
        go.notify_one();
        let over = async || stats.subscribers()[0].acked + stats.subscribers()[0].retried > 0;
        eventually("it is over", over).await;
        running.stop().await.unwrap();
        let one = stats.subscribers().remove(0);
        assert_eq!((one.dispatched, one.acked, one.retried), (1, 1, 0), "{level}: {one:?}");
        assert_eq!((done(db).await, receipts(db).await, db.rows().await), (n, n, n));
    }
}

/// Longer than their leases: on SQLite nobody, not even the extension, can write
/// meanwhile.
async fn a_transaction_five_times_as_long_as_the_lease_commits_once(db: &Db) {
    with_domain(db).await;
    let case = async || {
        db.exec("DELETE FROM done").await;
        let (written, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let then = Then::Wait(Arc::clone(&written), Arc::clone(&go));
        let app = db.app().only([subscriber(db, then).lease_ttl(4 * SECOND)]);
        let stats = app.stats();
        let running = app.start().await.unwrap();
        db.publish("q", 7).await;
        soon("it has written", written.notified()).await;
        tokio::time::sleep(20 * SECOND).await;
        go.notify_one();
        eventually("it is over", async || stats.subscribers()[0].acked == 1).await;
        running.stop().await.unwrap();
        let one = stats.subscribers().remove(0);
        let counts = (one.dispatched, one.acked, one.lease_lost);
        (counts, (done(db).await, receipts(db).await, db.rows().await))
    };
    db.unless_stalled(SECOND, ((1, 1, 0), (1, 1, 1)), case).await;
}

async fn an_error_after_a_transaction_longer_than_the_lease_is_retried_as_any_other(db: &Db) {
    with_domain(db).await;
    retried_once(db, 1, || subscriber(db, Then::Sleep).timeout(7 * SECOND)).await;
    assert_eq!((done(db).await, receipts(db).await), (0, 0));
}

/// One of its foreign keys is checked at the commit.
async fn a_refused_commit_after_a_transaction_longer_than_the_lease_is_retried_as_any_other(
    db: &Db,
) {
    db.exec("CREATE TABLE known (n bigint PRIMARY KEY)").await;
    db.exec(
        "CREATE TABLE done (n bigint NOT NULL REFERENCES known (n) DEFERRABLE INITIALLY DEFERRED)",
    )
    .await;
    let slow = || {
        let (written, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let then = Then::Wait(Arc::clone(&written), Arc::clone(&go));
        tokio::spawn(async move {
            written.notified().await;
            tokio::time::sleep(7 * SECOND).await;
            go.notify_one();
        });
        subscriber(db, then)
    };
    retried_once(db, 1, slow).await;
    assert_eq!((done(db).await, receipts(db).await), (0, 0));
}

async fn what_a_batch_longer_than_its_leases_does_not_ack_is_retried_as_any_other(db: &Db) {
    with_domain(db).await;
    let batch = || super::batches::of_odd_numbers(db, 7 * SECOND).batch_wait(SECOND);
    retried_once(db, 2, batch).await;
    assert_eq!((done(db).await, db.rows().await), (2, 1));
}

/// Runs it with so many messages until one of them has been retried, or its lease was lost.
async fn retried_once(db: &Db, messages: i64, subscriber: impl Fn() -> outbox::Subscriber) {
    let case = async || {
        db.exec("DELETE FROM done").await;
        db.send_all((1..=messages).map(|n| outbox::Outgoing::new("q", &n))).await;
        let slow = subscriber().lease_ttl(5 * SECOND);
        let app = db.app().only([slow.retry(outbox::retry::Constant::new(600 * SECOND))]);
        let stats = app.stats();
        let running = app.start().await.unwrap();
        let over = async || stats.subscribers()[0].retried + stats.subscribers()[0].lease_lost > 0;
        eventually("it is over", over).await;
        running.stop().await.unwrap();
        let one = stats.subscribers().remove(0);
        let attempted = db.int("SELECT count(*) FROM outbox WHERE attempts_count = 1").await;
        ((one.retried, one.lease_lost), db.leased().await, attempted)
    };
    db.unless_stalled(SECOND, ((1, 0), 0, 1), case).await;
}

/// On SQLite nobody can steal it afterwards.
async fn a_lease_stolen_before_the_transaction_begins_means_rollback(db: &Db) {
    with_domain(db).await;
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, waited) = (Arc::clone(&begun), Arc::clone(&go));
    let waiting = subscriber(db, Then::Return).layer(move |ctx, next: outbox::Next| {
        let (begun, go) = (Arc::clone(&begun), Arc::clone(&go));
        async move {
            begun.notify_one();
            go.notified().await;
            next.run(ctx).await
        }
    });
    let app = db.app().only([waiting]);
    let stats = app.stats();
    let running = app.start().await.unwrap();
    db.publish("q", 7).await;
    soon("it begins", told.notified()).await;
    let steal = if db.is_postgres() { "gen_random_uuid()" } else { "randomblob(16)" };
    db.exec(format!("UPDATE outbox SET acquired_token = {steal}")).await;
    waited.notify_one();
    eventually("it is over", async || stats.subscribers()[0].lease_lost == 1).await;
    running.stop().await.unwrap();
    is_anothers(db).await;
}

/// As the first statement: nothing has been asked of the server before.
async fn a_handler_may_choose_the_isolation_of_its_transaction(db: &Db) {
    with_domain(db).await;
    let serial = |ctx: outbox::Context| async move {
        let mut tx = outbox::Tx::<sqlx::Postgres>::from_context(&ctx).await?;
        sqlx::query("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE").execute(&mut *tx).await?;
        let level: String =
            sqlx::query_scalar("SHOW transaction_isolation").fetch_one(&mut *tx).await?;
        assert_eq!(level, "serializable");
        sqlx::query("INSERT INTO done VALUES (7)").execute(&mut *tx).await?;
        Ok::<_, outbox::HandlerError>(())
    };
    let serial = outbox::Subscriber::new("serial", "q", serial);
    let app = db.app().only([serial.requires::<outbox::Tx<sqlx::Postgres>>()]);
    let stats = app.stats();
    let running = app.start().await.unwrap();
    db.publish("q", 7).await;
    db.drained().await;
    running.stop().await.unwrap();
    let one = stats.subscribers().remove(0);
    assert_eq!((one.acked, one.retried, done(db).await), (1, 0, 1), "{one:?}");
}
