//! Letters are grouped by what went wrong.

use outbox::dlq::{Filter, Status};
use outbox::ops::Operator;
use outbox_tests::db::Db;
use outbox_tests::probe::with_result;
use outbox_tests::wait::{eventually, soon};
use outbox_tests::{on_both, on_postgres};
use sqlx::postgres::{PgConnectOptions, PgPool};

use super::{letters, plant};

on_both!(
    letters_of_one_problem_are_one_group,
    letters_of_other_writers_are_grouped_too,
    only_open_letters_of_the_filter_are_grouped,
    the_newest_letter_of_a_problem_is_of_the_filter_too,
    a_replay_of_a_problem_takes_all_of_its_letters,
    a_purge_of_a_problem_takes_all_of_its_letters,
);
on_postgres!(
    letters_that_somebody_has_locked_are_grouped_once_they_are_free,
    a_time_that_no_computer_can_tell_has_a_problem_too,
);

/// Three problems, as the engine writes them.
async fn fail(db: &Db) {
    let (subscriber, probe) = with_result("fails", "orders", |run| match run.n % 3 {
        0 => Err(format!("no stock for order {}", run.n)),
        1 => Err(format!("customer '{}' is unknown", run.n)),
        _ => Err(format!("card of order {} is declined", run.n)),
    });
    probe.let_end(1000);
    let running = db.app().only([subscriber.retry(outbox::retry::NoRetry)]).start().await.unwrap();
    for n in 0..10 {
        db.publish("orders", n).await;
    }
    db.drained().await;
    running.stop().await.unwrap();
}

async fn letters_of_one_problem_are_one_group(db: &Db) {
    fail(db).await;
    assert_eq!(db.int("SELECT count(*) FROM outbox_dlq WHERE fingerprint IS NULL").await, 0);
    let groups = letters(db).groups(&Filter::new(), 10).await.unwrap();
    assert_eq!((groups.letters, groups.count, groups.problems.len()), (10, 3, 3));
    let counts: Vec<_> = groups.problems.iter().map(|problem| problem.letters).collect();
    assert_eq!(counts, [4, 3, 3]);
    let first = &groups.problems[0];
    assert!(first.sample.as_ref().unwrap().contains("no stock for order"), "{:?}", first.sample);
    assert_eq!((&*first.queue, &*first.failure_reason), ("orders", "retry_terminal"));
    assert!(first.first_seen <= first.last_seen);
    let opened = letters(db).show(first.newest).await.unwrap().unwrap();
    assert_eq!(opened.letter.failed_at, first.last_seen);
    let few = letters(db).groups(&Filter::new(), 1).await.unwrap();
    assert_eq!((few.letters, few.count, few.problems), (10, 3, vec![first.clone()]));
}

async fn letters_of_other_writers_are_grouped_too(db: &Db) {
    plant(db, "a", 1203).await;
    db.exec("UPDATE outbox_dlq SET error_kind = NULL").await;
    db.exec("UPDATE outbox_dlq SET last_exception = NULL WHERE original_id = 7").await;
    let groups = letters(db).groups(&Filter::new(), 10).await.unwrap();
    assert_eq!((groups.letters, groups.count), (1203, 2));
    assert_eq!(groups.problems[0].letters, 1202);
    assert_eq!(groups.problems[1].sample, None);
}

async fn only_open_letters_of_the_filter_are_grouped(db: &Db) {
    assert_eq!(letters(db).groups(&Filter::new(), 10).await.unwrap().problems, []);
    plant(db, "a", 5).await;
    plant(db, "b", 4).await;
    db.exec("UPDATE outbox_dlq SET status = 'ignored' WHERE original_id = 1").await;
    let groups = letters(db).groups(&Filter::new().queue("a"), 10).await.unwrap();
    assert_eq!((groups.letters, groups.count, groups.problems[0].letters), (4, 1, 4));
    let all = letters(db).groups(&Filter::new(), 10).await.unwrap();
    assert_eq!((all.letters, all.count), (7, 2));
    let ignored = Filter::new().status(outbox::dlq::Status::Ignored);
    assert_eq!(letters(db).groups(&ignored, 10).await.unwrap().letters, 0);
}

async fn the_newest_letter_of_a_problem_is_of_the_filter_too(db: &Db) {
    plant(db, "a", 5).await;
    db.exec("UPDATE outbox_dlq SET fingerprint = 'f00d', failure_reason = 'rejected'").await;
    db.exec("UPDATE outbox_dlq SET failure_reason = 'max_deliveries' WHERE original_id < 3").await;
    let groups = letters(db).groups(&Filter::new().reason("max_deliveries"), 10).await.unwrap();
    let [problem] = &groups.problems[..] else { panic!("{groups:?}") };
    let newest = letters(db).show(problem.newest).await.unwrap().unwrap().letter;
    assert_eq!((newest.original_id, newest.failed_at), (2, problem.last_seen));
    assert_eq!((&*problem.failure_reason, problem.letters), ("max_deliveries", 2));
}

async fn a_replay_of_a_problem_takes_all_of_its_letters(db: &Db) {
    plant(db, "a", 5).await;
    let fingerprint =
        letters(db).groups(&Filter::new(), 1).await.unwrap().problems[0].fingerprint.clone();
    // Two more, from a writer that knows no fingerprints.
    plant(db, "a", 2).await;
    let filter = Filter::new().fingerprint(fingerprint);
    let report = letters(db).replay(&filter, &outbox::dlq::Replay::new()).await.unwrap();
    assert_eq!(report.replayed, 7);
}

async fn a_purge_of_a_problem_takes_all_of_its_letters(db: &Db) {
    plant(db, "a", 5).await;
    let fingerprint =
        letters(db).groups(&Filter::new(), 1).await.unwrap().problems[0].fingerprint.clone();
    plant(db, "a", 2).await;
    let filter = Filter::new().fingerprint(fingerprint).status(Status::Failed);
    assert_eq!(letters(db).count_purged(&filter).await.unwrap(), 7);
    assert_eq!(letters(db).purge(&filter).await.unwrap(), 7);
}

/// As by another operator, who gives them their fingerprints.
async fn letters_that_somebody_has_locked_are_grouped_once_they_are_free(db: &Db) {
    plant(db, "a", 5).await;
    let mut tx = db.pg().begin().await.unwrap();
    let hold = "SELECT FROM outbox_dlq WHERE original_id = 1 FOR UPDATE";
    sqlx::query(hold).execute(&mut *tx).await.unwrap();
    let options: PgConnectOptions = db.url.parse().unwrap();
    let hasty = PgPool::connect_lazy_with(options.options([("lock_timeout", "20ms")]));
    let hasty = Operator::postgres(hasty, db.names.clone()).dead_letters();
    let told = hasty.groups(&Filter::new(), 10).await.unwrap_err().to_string();
    assert!(told.contains("no fingerprint yet, or their table, are locked"), "{told}");
    let letters = letters(db);
    let groups = tokio::spawn(async move { letters.groups(&Filter::new(), 10).await });
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
        AND wait_event_type = 'Lock'";
    let waits = async || groups.is_finished() || db.int(waits).await > 0;
    eventually("it waits", waits).await;
    tx.rollback().await.unwrap();
    assert_eq!(groups.await.unwrap().unwrap().letters, 5);
}

/// Two of them, of which the second has the smaller id.
async fn a_time_that_no_computer_can_tell_has_a_problem_too(db: &Db) {
    plant(db, "a", 5).await;
    db.exec("UPDATE outbox_dlq SET failed_at = '294270-01-01' WHERE original_id = 3").await;
    db.exec("UPDATE outbox_dlq SET failed_at = '294260-01-01' WHERE original_id = 4").await;
    let groups = soon("it ends", letters(db).groups(&Filter::new(), 10)).await.unwrap();
    assert_eq!((groups.letters, groups.count), (5, 1));
}
