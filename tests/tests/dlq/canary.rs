//! A few letters first decide about the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use outbox::dlq::{Canary, Filter, Replay, Replayed};
use outbox::{Context, Subscriber};
use outbox_tests::db::Db;
use outbox_tests::{on_both, on_postgres};

use super::{letters, plant};

on_postgres!(a_canary_of_which_nothing_was_put_back_keeps_the_others);

on_both!(
    a_canary_that_is_handled_lets_the_others_follow,
    a_canary_that_fails_again_keeps_the_others,
    the_others_follow_a_canary_at_the_rate,
    a_replay_of_none_has_no_canary,
    a_share_may_fail,
    what_nobody_handles_in_time_counts_as_failed,
    a_canary_may_be_waited_for_as_long_as_it_takes,
);

/// Fails the first so many messages.
fn fails(first: u64) -> Subscriber {
    let runs = Arc::new(AtomicU64::new(0));
    Subscriber::new("runs", "a", move |_: Context| {
        let run = runs.fetch_add(1, Ordering::SeqCst);
        async move { if run < first { Err("not yet") } else { Ok(()) } }
    })
    .retry(outbox::retry::NoRetry)
}

async fn replayed(db: &Db, failing: u64, canary: Canary) -> outbox::dlq::ReplayReport {
    plant(db, "a", 40).await;
    let running = db.app().only([fails(failing)]).start().await.unwrap();
    let how = Replay::new().canary(canary);
    let report = letters(db).replay(&Filter::new().queue("a"), &how).await.unwrap();
    db.drained().await;
    running.stop().await.unwrap();
    report
}

async fn a_canary_that_is_handled_lets_the_others_follow(db: &Db) {
    let report = replayed(db, 0, Canary::new(5, 0.0)).await;
    let canary = report.canary.unwrap();
    assert_eq!((canary.handled, canary.failed, canary.waiting, canary.passed), (5, 0, 0, true));
    assert_eq!((report.replayed, report.stopped()), (40, false));
}

async fn a_canary_that_fails_again_keeps_the_others(db: &Db) {
    let report = replayed(db, 100, Canary::new(5, 0.5)).await;
    let canary = report.canary.unwrap();
    assert!(canary.failed >= 3 && !canary.passed, "{canary:?}");
    assert_eq!((report.replayed, report.stopped()), (5, true));
    let resolved = "SELECT count(*) FROM outbox_dlq WHERE status = 'resolved'";
    assert_eq!((db.int(resolved).await, db.letters().await), (5, 45));
}

async fn a_replay_of_none_has_no_canary(db: &Db) {
    plant(db, "a", 1).await;
    let how = Replay::new().canary(Canary::new(1, 0.0)).limit(0);
    let report = letters(db).replay(&Filter::new(), &how).await.unwrap();
    assert_eq!((report.canary, report.replayed, report.stopped()), (None, 0, false));
}

async fn the_others_follow_a_canary_at_the_rate(db: &Db) {
    plant(db, "a", 2).await;
    let running = db.app().only([fails(0)]).start().await.unwrap();
    let how = Replay::new().canary(Canary::new(1, 0.0)).per_second(0.5);
    let (begun, mut went) = (Instant::now(), Vec::new());
    let note = |_: &[Replayed]| went.push(Instant::now());
    letters(db).replay_with(&Filter::new().queue("a"), &how, note).await.unwrap();
    running.stop().await.unwrap();
    assert!(went[1] - begun >= Duration::from_secs(2), "{:?}", went[1] - begun);
}

async fn a_canary_of_which_nothing_was_put_back_keeps_the_others(db: &Db) {
    plant(db, "a", 5).await;
    let (all, how) = (Filter::new().queue("a"), Replay::new().canary(Canary::new(5, 0.0)));
    let mut tx = db.pg().begin().await.unwrap();
    sqlx::query("SELECT id FROM outbox_dlq FOR UPDATE").execute(&mut *tx).await.unwrap();
    let report = letters(db).replay(&all, &how).await.unwrap();
    assert!(report.stopped() && report.replayed == 0, "{report:?}");
    tx.rollback().await.unwrap();
    let none = letters(db).replay(&Filter::new().queue("b"), &how).await.unwrap();
    assert!(!none.stopped(), "there are none");
}

async fn a_share_may_fail(db: &Db) {
    let report = replayed(db, 2, Canary::new(10, 0.2)).await;
    let canary = report.canary.unwrap();
    assert_eq!((canary.handled, canary.failed, canary.passed), (8, 2, true));
    assert_eq!(report.replayed, 40);
}

async fn what_nobody_handles_in_time_counts_as_failed(db: &Db) {
    plant(db, "a", 10).await;
    let how = Replay::new().canary(Canary::new(3, 0.9).patience(Duration::from_millis(100)));
    let report = letters(db).replay(&Filter::new(), &how).await.unwrap();
    let canary = report.canary.unwrap();
    assert_eq!((canary.handled, canary.failed, canary.waiting, canary.passed), (0, 0, 3, false));
    assert_eq!((report.replayed, db.rows().await), (3, 3));
}

async fn a_canary_may_be_waited_for_as_long_as_it_takes(db: &Db) {
    let report = replayed(db, 0, Canary::new(5, 0.0).patience(Duration::MAX)).await;
    assert_eq!((report.canary.unwrap().handled, report.replayed), (5, 40));
}
