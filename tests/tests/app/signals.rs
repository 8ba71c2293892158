//! The first signal drains, the second ends at once, and nothing is lost.

use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::wait::{eventually, soon};

use super::*;

on_both!(
    each_signal_lets_a_running_handler_finish_and_settles_it,
    rows_that_nobody_has_started_are_given_back_uncounted,
    a_second_signal_ends_at_once_and_loses_nothing,
    a_second_signal_ends_what_waits_for_its_threads,
    a_second_signal_ends_what_the_start_has_left_behind,
    a_second_signal_ends_what_blocks_the_runtime,
    a_signal_ends_what_a_start_that_failed_has_left_behind,
);

async fn each_signal_lets_a_running_handler_finish_and_settles_it(db: &Db) {
    for name in ["TERM", "INT"] {
        let program = child::on(db, &[]).await;
        db.publish("slow", 7).await;
        program.says("started 7").await;
        program.signal(name).await;
        let end = program.end().await;
        assert_eq!(end.code, Some(0), "{}", end.log);
        assert_eq!(end.out, "started 7\nfinished 7\n");
        assert_eq!(db.rows().await, 0);
    }
}

async fn rows_that_nobody_has_started_are_given_back_uncounted(db: &Db) {
    for n in 0..5 {
        db.publish("endless", n).await;
    }
    let program = child::on(db, &[("OUTBOX_DRAIN_TIMEOUT", "1ms")]).await;
    program.says("started 0").await;
    eventually("all are claimed", async || db.leased().await == 5).await;
    program.signal("TERM").await;
    let end = program.end().await;
    assert_eq!(end.out, "started 0\n", "no other was started");
    assert_eq!((db.rows().await, db.leased().await), (5, 0), "{}", end.log);
    assert_eq!(db.deliveries().await, 1, "only the started one was delivered");
}

async fn a_second_signal_ends_at_once_and_loses_nothing(db: &Db) {
    for (first, second, code) in [("TERM", "INT", 130), ("INT", "TERM", 143)] {
        let program = child::on(db, &[("OUTBOX_DRAIN_TIMEOUT", "1h")]).await;
        db.publish("endless", 7).await;
        program.says("started 7").await;
        program.signal(first).await;
        program.logs("draining").await;
        program.signal(second).await;
        assert_eq!(program.end().await.code, Some(code));
        assert_eq!((db.rows().await, db.leased().await), (1, 1), "its lease runs out by itself");
        db.exec("DELETE FROM outbox").await;
    }
}

/// `run` has returned, and the runtime waits for a handler that does not end.
async fn a_second_signal_ends_what_waits_for_its_threads(db: &Db) {
    let program = child::on(db, &[("OUTBOX_DRAIN_TIMEOUT", "1ms")]).await;
    db.publish("stuck", 7).await;
    program.says("started 7").await;
    program.signal("TERM").await;
    program.logs("the app has drained").await;
    program.signal("TERM").await;
    assert_eq!(program.end().await.code, Some(143));
    assert_eq!(db.rows().await, 1);
}

async fn a_second_signal_ends_what_the_start_has_left_behind(db: &Db) {
    let program = child::on(db, &[("STUCK_AT_THE_START", "yes")]).await;
    program.says("started 0").await;
    program.signal("TERM").await;
    program.logs("the app has drained").await;
    program.signal("TERM").await;
    assert_eq!(program.end().await.code, Some(143));
}

/// Nobody is left to hear of the first one.
async fn a_second_signal_ends_what_blocks_the_runtime(db: &Db) {
    let program = child::on(db, &[("ONE_THREAD", "yes")]).await;
    db.publish("blocks", 7).await;
    program.says("started 7").await;
    program.signal("TERM").await;
    program.signal("TERM").await;
    assert_eq!(program.end().await.code, Some(143));
    assert_eq!(db.rows().await, 1);
}

async fn a_signal_ends_what_a_start_that_failed_has_left_behind(db: &Db) {
    let stuck = [("STUCK_AT_THE_START", "yes"), ("FAILS_AT_THE_START", "yes")];
    let program = child::on(db, &stuck).await;
    program.says("started 0").await;
    program.logs("the app has drained").await;
    program.signal("TERM").await;
    assert_eq!(program.end().await.code, Some(143));
}

/// A server that accepts and never answers.
#[tokio::test]
async fn a_signal_during_the_start_ends_it() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://u@{}/db", silent.local_addr().unwrap());
    let program = child::start(&std::env::temp_dir(), &[("DATABASE_URL", &url)]);
    let _connection = soon("it connects", silent.accept()).await.unwrap();
    program.signal("TERM").await;
    let end = program.end().await;
    assert_eq!(end.code, Some(0), "{}", end.log);
}
