//! A ping is green while the app can work, and only then.

use outbox_tests::db::Db;
use outbox_tests::probe::{free, gated};
use outbox_tests::wait::{eventually, soon};
use outbox_tests::{capture, on_both};

use super::HOUR;

outbox_tests::cases!(sqlite in sqlite_only:
    ping_is_red_once_the_file_is_another_one);

on_both!(
    ping_is_green_while_it_runs_and_red_after_the_stop,
    ping_is_bounded_while_the_app_stops,
    start_after_stop_handles_messages_again,
    stop_twice_is_fine,
);

async fn ping_is_green_while_it_runs_and_red_after_the_stop(db: &Db) {
    let running = db.app().only([free("it", "q").0]).start().await.unwrap();
    running.ping().await.unwrap();
    running.stop().await.unwrap();
    assert!(running.ping().await.unwrap_err().to_string().contains("stopped"));
}

/// As by a restore under an app that runs.
async fn ping_is_red_once_the_file_is_another_one(db: &Db) {
    capture::start();
    let often = std::time::Duration::from_millis(20);
    let subscriber = free("it", "q").0.min_poll(often).max_poll(often);
    let running = db.app().only([subscriber]).start().await.unwrap();
    running.ping().await.unwrap();
    let red = async || {
        let told = running.ping().await.unwrap_err().to_string();
        assert!(told.contains("replaced or deleted under this program: restart it"), "{told}");
        let report = running.health().check().await;
        assert!(!report.ready && report.reasons.contains(&told), "{report:?}");
    };
    let file = db.url.strip_prefix("sqlite:").unwrap();
    for end in ["", "-wal", "-shm"] {
        std::fs::rename(format!("{file}{end}"), format!("{file}.old{end}")).unwrap();
    }
    red().await;
    eventually("the log says so", async || {
        let is_told = |line: &capture::Line| line.says("error", "claim: the file was replaced");
        capture::count(is_told) > 0
    })
    .await;
    let anew = outbox::sqlite::connect(&db.url).await.unwrap();
    outbox::schema::migrate_tables(&anew, &db.names).await.unwrap();
    anew.close().await;
    red().await;
    running.stop().await.unwrap();
}

async fn ping_is_bounded_while_the_app_stops(db: &Db) {
    let (subscriber, probe) = gated("it", "q");
    let app = db.app().only([subscriber]).drain_timeout(HOUR);
    let running = std::sync::Arc::new(app.start().await.unwrap());
    db.publish("q", 7).await;
    probe.start().await;
    let stopping = std::sync::Arc::clone(&running);
    let stop = tokio::spawn(async move { stopping.stop().await });
    tokio::task::yield_now().await;
    eventually("ping is red", async || soon("ping answers", running.ping()).await.is_err()).await;
    probe.let_end(1);
    stop.await.unwrap().unwrap();
}

async fn start_after_stop_handles_messages_again(db: &Db) {
    let (subscriber, probe) = free("it", "q");
    let app = db.app().only([subscriber]);
    for n in 0..3 {
        let running = app.start().await.unwrap();
        db.publish("q", n).await;
        assert_eq!(probe.start().await.n, n);
        running.ping().await.unwrap();
        running.stop().await.unwrap();
        assert_eq!(db.rows().await, 0);
    }
}

async fn stop_twice_is_fine(db: &Db) {
    let running = db.app().only([free("it", "q").0]).start().await.unwrap();
    let (one, two) = tokio::join!(running.stop(), running.stop());
    assert!(one.is_ok() && two.is_ok());
    running.stop().await.unwrap();
}
