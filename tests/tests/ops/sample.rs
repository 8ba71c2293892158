//! How much lies in each queue, and how fast that changes.

use std::time::Duration;

use outbox::Outgoing;
use outbox::ops::{QueueSample, SampleOptions};
use outbox_tests::db::Db;
use outbox_tests::on_both;

use super::{ago, lease, letter, operator};

on_both!(
    rows_are_counted_by_what_they_wait_for,
    a_row_that_was_always_due_is_counted,
    counts_stop_at_the_bound_and_say_so,
    rates_are_the_changes_between_two_samples,
    queues_that_are_named_end_at_no_rate_that_is_known,
    a_rate_that_cannot_be_known_is_none,
);

async fn sample(db: &Db, options: SampleOptions) -> Vec<QueueSample> {
    operator(db).sample(&options).await.unwrap().queues
}

async fn rows_are_counted_by_what_they_wait_for(db: &Db) {
    let due = db.publish("q", 1).await;
    db.exec(format!("UPDATE outbox SET next_attempt_at = {} WHERE id = {due}", ago(db, 100))).await;
    db.publish("q", 2).await;
    db.send(Outgoing::new("q", &3).delay(Duration::from_secs(900))).await;
    let retrying = db.publish("q", 4).await;
    db.exec(format!("UPDATE outbox SET attempts_count = 2 WHERE id = {retrying}")).await;
    let held = db.publish("q", 5).await;
    lease(db, held, 1000).await;
    letter(db, "q", 100).await;
    letter(db, "q", 101).await;
    db.exec("UPDATE outbox_dlq SET status = 'ignored' WHERE original_id = 101").await;
    db.publish("other", 1).await;
    operator(db).pause(&["q"], None).await.unwrap();

    let queues = sample(db, SampleOptions::default()).await;
    let [other, q] = &queues[..] else { panic!("{queues:?}") };
    assert_eq!((other.queue.as_str(), other.waiting, other.due), ("other", 1, 1));
    assert_eq!((q.queue.as_str(), q.waiting, q.due, q.leased), ("q", 4, 3, 1));
    assert_eq!((q.retrying, q.dead_letters, q.paused_at.is_some()), (1, 1, true));
    let oldest = q.oldest.unwrap().as_secs();
    assert!((100..130).contains(&oldest), "{oldest} s");
    assert!(!q.bounded && other.paused_at.is_none() && other.oldest.is_some());

    let one = sample(db, SampleOptions::default().of(["other", "unknown", "other"])).await;
    let named: Vec<_> = one.iter().map(|it| (it.queue.as_str(), it.waiting)).collect();
    assert_eq!(named, [("other", 1), ("unknown", 0)]);
}

/// As an operator may write it, for what is always due.
async fn a_row_that_was_always_due_is_counted(db: &Db) {
    let always = if db.is_postgres() { "'-infinity'" } else { "-9223372036854775808" };
    db.publish("q", 1).await;
    db.exec(format!("UPDATE outbox SET next_attempt_at = {always}")).await;
    let [q] = &sample(db, SampleOptions::default()).await[..] else { panic!() };
    assert_eq!((q.waiting, q.due), (1, 1));
    assert!(q.oldest.is_none_or(|age| age < Duration::from_secs(3600)), "{q:?}");
}

async fn counts_stop_at_the_bound_and_say_so(db: &Db) {
    for n in 0..5 {
        db.publish("q", n).await;
        letter(db, "q", n).await;
    }
    let bounded = |rows| {
        let mut options = SampleOptions::default();
        options.bound = Some(rows);
        options
    };
    let [cut] = &sample(db, bounded(4)).await[..] else { panic!() };
    assert_eq!((cut.waiting, cut.bounded), (4, true));
    assert_eq!((cut.dead_letters, cut.dead_letters_bounded), (4, true));
    for options in [bounded(5), bounded(i64::MAX as u64), SampleOptions::default().exact()] {
        let [whole] = &sample(db, options).await[..] else { panic!() };
        assert_eq!((whole.waiting, whole.bounded), (5, false));
        assert_eq!((whole.dead_letters, whole.dead_letters_bounded), (5, false));
    }
}

async fn rates_are_the_changes_between_two_samples(db: &Db) {
    let operator = operator(db);
    db.publish("q", 0).await;
    let mut before = operator.sample(&SampleOptions::default()).await.unwrap();
    for n in 0..10 {
        db.publish("q", n).await;
    }
    db.exec("DELETE FROM outbox WHERE id % 2 = 1 AND id < 9").await;
    letter(db, "q", 1).await;
    let mut after = operator.sample(&SampleOptions::default()).await.unwrap();
    after.at = before.at + Duration::from_secs(2);
    let rates = after.rates_since(&before);
    assert_eq!((rates.published_per_second, rates.ended_per_second), (Some(5.0), Some(2.0)));
    let [q] = &rates.queues[..] else { panic!("{rates:?}") };
    assert_eq!((q.growth_per_second, q.dead_letters_per_second), (Some(3.0), Some(0.5)));
    before.queues.clear();
    let growth =
        |before: &outbox::ops::Sample| after.rates_since(before).queues[0].growth_per_second;
    assert_eq!(growth(&before), Some(3.5), "it is new");
    before.more_queues = true;
    assert_eq!(growth(&before), None, "or was not listed");
}

/// What is published is counted by the ids of the whole table.
async fn queues_that_are_named_end_at_no_rate_that_is_known(db: &Db) {
    let (operator, named) = (operator(db), SampleOptions::default().of(["q"]));
    db.publish("q", 1).await;
    let before = operator.sample(&named).await.unwrap();
    db.publish("other", 1).await;
    let rates = operator.sample(&named).await.unwrap().rates_since(&before);
    assert!(rates.published_per_second > Some(0.0));
    assert_eq!((rates.ended_per_second, rates.queues[0].growth_per_second), (None, Some(0.0)));
}

async fn a_rate_that_cannot_be_known_is_none(db: &Db) {
    for n in 0..3 {
        db.publish("q", n).await;
    }
    let mut options = SampleOptions::default();
    options.bound = Some(2);
    let operator = operator(db);
    let before = operator.sample(&options).await.unwrap();
    let rates = operator.sample(&options).await.unwrap().rates_since(&before);
    assert_eq!((rates.ended_per_second, rates.queues[0].growth_per_second), (None, None));
    assert_eq!(rates.queues[0].dead_letters_per_second, Some(0.0));
}
