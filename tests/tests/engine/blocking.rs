//! Handlers that block every thread of the runtime: nothing of the app runs
//! meanwhile but the thread that extends leases.

use std::sync::atomic::{AtomicUsize, Ordering};

use outbox::{Context, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::wait::eventually;
use outbox_tests::{capture, on_both};

use super::SECOND;

on_both!(a_lease_outlives_handlers_that_block_the_whole_runtime);

async fn a_lease_outlives_handlers_that_block_the_whole_runtime(db: &Db) {
    capture::start();
    let runs = std::sync::Arc::new(AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&runs);
    // Blocks as many threads as the runtime has, for four leases.
    let blocking = Subscriber::new("blocking", "q", move |ctx: Context| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            std::thread::sleep(4 * SECOND);
            assert!(!ctx.cancelled().is_cancelled(), "the lease holds");
        }
    });
    let app = db.app().only([blocking.lease_ttl(SECOND).max_workers(2)]);
    let running = app.start().await.unwrap();
    db.send_all((0..2_i64).map(|n| outbox::Outgoing::new("q", &n))).await;
    eventually("all are settled", async || db.rows().await == 0).await;
    running.stop().await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2, "each was delivered once");
    assert_eq!(db.letters().await, 0);
    let told = |line: &capture::Line| {
        line.get("message").is_some_and(|text| text.contains("handlers block the runtime"))
    };
    assert!(capture::lines().iter().any(told));
}
