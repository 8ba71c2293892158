//! A transaction whose lease is lost counts for nothing, whoever took the row.

use std::sync::Arc;

use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::wait::{eventually, soon};
use tokio::sync::Notify;

use super::handlers::{Then, subscriber};
use super::*;

on_postgres!(
    a_lease_stolen_before_the_ack_means_rollback,
    a_lease_stolen_while_the_handler_runs_cancels_it,
    no_row_is_locked_while_the_handler_runs,
    a_connection_that_dies_before_the_commit_leaves_the_message,
);

const STEAL: &str = "UPDATE outbox SET acquired_token = gen_random_uuid(), \
                     acquired_at = clock_timestamp() WHERE queue = 'q'";

/// Starts an app whose handler has written and waits.
async fn waiting(db: &Db, ttl: Duration) -> (outbox::RunningApp, Arc<Notify>) {
    with_domain(db).await;
    let (written, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let then = Then::Wait(Arc::clone(&written), Arc::clone(&go));
    let app = db.app().only([subscriber(db, then).lease_ttl(ttl)]);
    let running = app.start().await.unwrap();
    db.publish("q", 7).await;
    soon("it has written", written.notified()).await;
    (running, go)
}

/// The row is there and somebody else's; nothing was written.
async fn is_anothers(db: &Db) {
    assert_eq!((done(db).await, receipts(db).await, db.rows().await), (0, 0, 1));
    assert_eq!(db.leased().await, 1);
}

async fn a_lease_stolen_before_the_ack_means_rollback(db: &Db) {
    let (running, go) = waiting(db, 60 * SECOND).await;
    db.exec(STEAL).await;
    go.notify_one();
    running.stop().await.unwrap();
    is_anothers(db).await;
}

async fn a_lease_stolen_while_the_handler_runs_cancels_it(db: &Db) {
    let (running, _go) = waiting(db, SECOND).await;
    db.exec(STEAL).await;
    // Within a lease: the extension finds out.
    let inside = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                  AND application_name = 'engine' AND state LIKE 'idle in transaction%'";
    eventually("it was rolled back", async || db.int(inside).await == 0).await;
    is_anothers(db).await;
    let _ = running.stop().await;
}

async fn no_row_is_locked_while_the_handler_runs(db: &Db) {
    let (running, go) = waiting(db, 60 * SECOND).await;
    let free = "SELECT count(*) FROM (SELECT 1 FROM outbox WHERE queue = 'q' \
                FOR UPDATE SKIP LOCKED) AS free";
    assert_eq!(db.int(free).await, 1);
    go.notify_one();
    eventually("it commits", async || done(db).await == 1).await;
    running.stop().await.unwrap();
    assert_eq!(receipts(db).await, 1);
}

async fn a_connection_that_dies_before_the_commit_leaves_the_message(db: &Db) {
    let (running, go) = waiting(db, 60 * SECOND).await;
    db.exec(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()
         AND application_name = 'engine' AND state LIKE 'idle in transaction%'",
    )
    .await;
    go.notify_one();
    eventually("it has failed", async || {
        db.int("SELECT count(*) FROM outbox WHERE attempts_count = 1").await == 1
    })
    .await;
    assert_eq!((done(db).await, receipts(db).await), (0, 0));
    // The retry succeeds.
    go.notify_one();
    eventually("it commits", async || done(db).await == 1).await;
    running.stop().await.unwrap();
    assert_eq!((receipts(db).await, db.rows().await), (1, 1));
}
