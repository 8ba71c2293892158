//! Letters are resolved, ignored and purged.

use std::time::Duration;

use outbox::dlq::{Filter, Replay, Status};
use outbox_tests::db::Db;
use outbox_tests::letters::ago;
use outbox_tests::{capture, on_both};

use super::{letters, plant};

on_both!(
    open_letters_are_resolved_or_ignored_with_a_note,
    what_is_done_with_is_not_marked_again,
    a_purge_leaves_open_letters_unless_it_is_told_so,
    a_purge_goes_by_age_and_passes_by_what_is_locked,
    notes_are_made_storable,
    a_purge_of_open_letters_ends_and_leaves_those_that_fail_meanwhile,
    the_log_says_what_was_done_with_which_letters_even_half_way,
    the_log_does_not_call_a_replay_whole_that_kept_a_letter,
);

async fn count(db: &Db, what: &str) -> i64 {
    db.int(format!("SELECT count(*) FROM outbox_dlq WHERE {what}")).await
}

async fn open_letters_are_resolved_or_ignored_with_a_note(db: &Db) {
    plant(db, "a", 1100).await;
    plant(db, "b", 2).await;
    db.exec("UPDATE outbox_dlq SET note = 'said by the handler'").await;
    let letters = letters(db);
    assert_eq!(letters.resolve(&Filter::new().queue("a"), None).await.unwrap(), 1100);
    assert_eq!(count(db, "status = 'resolved' AND resolved_at >= failed_at").await, 1100);
    assert_eq!(count(db, "status = 'resolved' AND note = 'said by the handler'").await, 1100);
    assert_eq!(letters.ignore(&Filter::new().queue("b"), Some("a test")).await.unwrap(), 2);
    assert_eq!(count(db, "status = 'ignored' AND note = 'a test' AND queue = 'b'").await, 2);
    assert_eq!(db.rows().await, 0);
}

async fn what_is_done_with_is_not_marked_again(db: &Db) {
    plant(db, "a", 3).await;
    let letters = letters(db);
    letters.ignore(&Filter::new(), Some("first")).await.unwrap();
    assert_eq!(letters.resolve(&Filter::new(), Some("second")).await.unwrap(), 0);
    let ignored = Filter::new().status(Status::Ignored);
    assert_eq!(letters.resolve(&ignored, Some("second")).await.unwrap(), 0);
    assert_eq!(count(db, "status = 'ignored' AND note = 'first'").await, 3);
    plant(db, "a", 1).await;
    assert_eq!(letters.resolve(&ignored, None).await.unwrap(), 0, "it is not ignored");
}

async fn a_purge_leaves_open_letters_unless_it_is_told_so(db: &Db) {
    plant(db, "a", 1500).await;
    db.exec("UPDATE outbox_dlq SET status = 'resolved' WHERE original_id <= 700").await;
    db.exec("UPDATE outbox_dlq SET status = 'ignored' WHERE original_id > 1400").await;
    let letters = letters(db);
    assert_eq!(letters.count_purged(&Filter::new()).await.unwrap(), 800);
    let mut told = Vec::new();
    let purged = letters.purge_with(&Filter::new(), |purged| told.push(purged)).await.unwrap();
    assert_eq!((purged, told), (800, vec![500, 700, 800]));
    assert_eq!((count(db, "status = 'failed'").await, db.letters().await), (700, 700));
    let open = Filter::new().status(Status::Failed).queue("a");
    assert_eq!(letters.purge(&open).await.unwrap(), 700);
    assert_eq!(db.letters().await, 0);
}

async fn a_purge_goes_by_age_and_passes_by_what_is_locked(db: &Db) {
    plant(db, "a", 10).await;
    db.exec(format!(
        "UPDATE outbox_dlq SET status = 'resolved', failed_at = {} WHERE original_id <= 4",
        ago(db, 7200)
    ))
    .await;
    db.exec("UPDATE outbox_dlq SET status = 'resolved' WHERE original_id = 5").await;
    let letters = letters(db);
    let hour_ago = letters.now().await.unwrap() - Duration::from_secs(3600);
    let old = Filter::new().until(hour_ago);
    let mut left = 6;
    if db.is_postgres() {
        let mut tx = db.pg().begin().await.unwrap();
        let hold = "SELECT id FROM outbox_dlq WHERE original_id = 1 FOR UPDATE";
        sqlx::query(hold).execute(&mut *tx).await.unwrap();
        assert_eq!(letters.purge(&old).await.unwrap(), 3);
        tx.rollback().await.unwrap();
        left += 1;
        assert_eq!(db.letters().await, left);
    }
    assert_eq!(letters.purge(&old).await.unwrap(), if db.is_postgres() { 1 } else { 4 });
    assert_eq!((db.letters().await, count(db, "original_id = 5").await), (6, 1));
}

async fn notes_are_made_storable(db: &Db) {
    plant(db, "a", 1).await;
    letters(db).ignore(&Filter::new(), Some(&format!("a\0{}", "é".repeat(9000)))).await.unwrap();
    assert_eq!(count(db, "note LIKE 'a␀é%[truncated]'").await, 1);
}

async fn a_purge_of_open_letters_ends_and_leaves_those_that_fail_meanwhile(db: &Db) {
    plant(db, "a", 1100).await;
    let runtime = tokio::runtime::Handle::current();
    let mut batches = 0;
    // As fast as some go, others come.
    let others_fail = async || {
        plant(db, "b", 500).await;
        let now = ago(db, 0);
        db.exec(format!("UPDATE outbox_dlq SET failed_at = {now} WHERE queue = 'b'")).await;
    };
    let open = Filter::new().status(Status::Failed);
    let letters = letters(db);
    let purged = letters.purge_with(&open, |_| {
        batches += 1;
        assert!(batches < 9, "it does not end");
        tokio::task::block_in_place(|| runtime.block_on(others_fail()));
    });
    assert_eq!(purged.await.unwrap(), 1100);
    assert_eq!((batches, count(db, "queue = 'b'").await, db.letters().await), (3, 1500, 1500));
    assert_eq!(letters.count_purged(&open).await.unwrap(), 1500);
}

/// What the log says of a queue's letters: what was done with how many, and whether that
/// was all.
fn audited(queue: &str) -> Vec<[String; 3]> {
    let lines = capture::lines().into_iter();
    let of_queue = format!("queue={queue:?}");
    let mine = lines.filter(|line| line.get("filter").is_some_and(|told| told.contains(&of_queue)));
    let told = |line: capture::Line| {
        ["message", "letters", "whole"].map(|field| line.get(field).unwrap().to_owned())
    };
    mine.map(told).collect()
}

async fn the_log_says_what_was_done_with_which_letters_even_half_way(db: &Db) {
    capture::start();
    let queue = format!("audited-{}", if db.is_postgres() { "p" } else { "s" });
    let (letters, filter) = (letters(db), Filter::new().queue(&*queue));
    plant(db, &queue, 1200).await;
    letters.replay(&filter, &Replay::new().limit(100)).await.unwrap();
    letters.resolve(&filter, None).await.unwrap();
    letters.ignore(&filter, None).await.unwrap();
    // Somebody who is told of the first batch gives up.
    let purge = {
        let (letters, filter) = (letters.clone(), filter.clone());
        async move { letters.purge_with(&filter, |_| panic!("given up")).await }
    };
    assert!(tokio::spawn(purge).await.unwrap_err().is_panic());
    let told = [
        ["dead letters were replayed", "100", "true"],
        ["dead letters were resolved", "1100", "true"],
        ["dead letters were ignored", "0", "true"],
        ["dead letters were purged", "500", "false"],
    ];
    assert_eq!(audited(&queue), told);
}

async fn the_log_does_not_call_a_replay_whole_that_kept_a_letter(db: &Db) {
    capture::start();
    let queue = format!("kept-{}", if db.is_postgres() { "p" } else { "s" });
    plant(db, &queue, 2).await;
    db.exec("UPDATE outbox_dlq SET timer_id = 'taken' WHERE original_id = 1").await;
    db.send(outbox::Outgoing::new(&*queue, &1).timer_id("taken")).await;
    let report = letters(db).replay(&Filter::new().queue(&*queue), &Replay::new()).await.unwrap();
    assert_eq!((report.replayed, report.kept), (1, 1));
    assert_eq!(audited(&queue), [["dead letters were replayed", "1", "false"]]);
}
