//! Probes that ask on runtimes of their own leave nothing of those behind.

use std::sync::Arc;

use outbox::RunningApp;
use outbox_tests::capture;
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe::free;
use outbox_tests::wait::eventually;
use tokio::runtime::Builder;

use super::SOON;

on_postgres!(connections_that_a_probe_opens_outlive_its_runtime);

/// As many at once as make the engine open connections, on a runtime that then ends.
fn ask(running: &RunningApp) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let health = running.health().limit(SOON);
    runtime.block_on(async {
        let reports = tokio::join!(health.check(), health.check(), health.check());
        for report in [reports.0, reports.1, reports.2] {
            assert!(report.ready, "{:?}", report.reasons);
        }
        let pings = tokio::join!(running.ping(), running.ping(), running.ping());
        pings.0.and(pings.1).and(pings.2).unwrap();
    });
}

async fn connections_that_a_probe_opens_outlive_its_runtime(db: &Db) {
    capture::start();
    let queue = outbox_tests::backend::unique("probed");
    let (subscriber, probe) = free("it", &queue);
    let running = Arc::new(db.app().only([subscriber]).start().await.unwrap());
    eventually("it is ready", async || running.health().limit(SOON).check().await.ready).await;
    // Other apps log here, too, and none of them says that.
    let spoilt = |line: &capture::Line| line.text().contains("Tokio 1.x context");
    for n in 0..20 {
        let asked = Arc::clone(&running);
        tokio::task::spawn_blocking(move || ask(&asked)).await.unwrap();
        let handled = tokio::time::timeout(SOON, async {
            db.publish(&queue, n).await;
            probe.start_ever().await.n
        });
        assert_eq!(handled.await.expect("it is handled soon"), n);
        let spoilt: Vec<_> = capture::lines().into_iter().filter(spoilt).collect();
        assert!(spoilt.is_empty(), "{spoilt:#?}");
    }
    db.drained().await;
    running.stop().await.unwrap();
}
