//! Handlers that block every thread of the runtime: nothing of the app runs
//! meanwhile but the thread that extends leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outbox::{Context, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::wait::eventually_within;
use outbox_tests::{capture, on_both};

use super::MINUTE;

on_both!(
    a_lease_outlives_handlers_that_block_the_whole_runtime,
    a_lease_of_which_little_is_left_outlives_them_too,
);

async fn a_lease_outlives_handlers_that_block_the_whole_runtime(db: &Db) {
    capture::start();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    const TTL: Duration = Duration::from_secs(6);
    // Blocks as many threads as the runtime has, for two leases.
    let blocking = Subscriber::new("blocking", "q", move |ctx: Context| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            std::thread::sleep(2 * TTL);
            assert!(!ctx.cancelled().is_cancelled(), "the lease holds");
        }
    });
    let app = db.app().only([blocking.lease_ttl(TTL).max_workers(2)]);
    let running = app.start().await.unwrap();
    db.send_all((0..2_i64).map(|n| outbox::Outgoing::new("q", &n))).await;
    eventually_within(MINUTE, "all are settled", async || db.rows().await == 0).await;
    running.stop().await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2, "each was delivered once");
    assert_eq!(db.letters().await, 0);
    let warned = capture::count(|line| line.says("message", "handlers block the runtime"));
    assert!(warned > 0);
}

/// The lease task has just run when they block, and has extended none of these: two thirds
/// of each lease went by before its row was started.
async fn a_lease_of_which_little_is_left_outlives_them_too(db: &Db) {
    const TTL: Duration = Duration::from_secs(30);
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let blocking = Subscriber::new("late", "q", move |ctx: Context| {
        let counted = Arc::clone(&counted);
        let late = ctx.lease_deadline() - TTL * 35 / 100;
        async move {
            if ctx.decode::<i64>().unwrap() < 2 {
                tokio::time::sleep_until(late).await;
                return;
            }
            counted.fetch_add(1, Ordering::SeqCst);
            // For longer than is left of the lease.
            std::thread::sleep(TTL / 2);
            assert!(!ctx.cancelled().is_cancelled(), "the lease holds");
        }
    });
    let app = db.app().only([blocking.lease_ttl(TTL).max_workers(2)]);
    db.send_all((0..4_i64).map(|n| outbox::Outgoing::new("q", &n))).await;
    let running = app.start().await.unwrap();
    eventually_within(MINUTE, "all are settled", async || db.rows().await == 0).await;
    running.stop().await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2, "each of the late ones was delivered once");
    assert_eq!(db.letters().await, 0);
}
