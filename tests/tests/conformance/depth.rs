//! What a look into the queues finds.

use std::time::Duration;

use outbox::Outgoing;
use outbox::TimerConflict;
use outbox::schema::Database;
use outbox::testing::store::{Depth, Store, ack_publishing_counted};

use crate::bench::{Bench, SqlBench, Steps, about, death};

const HOUR: Duration = Duration::from_secs(3600);

async fn look<B: Bench>(b: &B, queues: &[&str], most: usize) -> Vec<Depth> {
    let queues: Vec<String> = queues.iter().map(|&queue| queue.to_owned()).collect();
    let mut depths = b.store().depths(&queues, most).await.unwrap();
    depths.sort_by(|a, b| a.queue.cmp(&b.queue));
    depths
}

/// Backlog, due, leased, dead letters.
fn counts(depth: &Depth) -> (usize, usize, usize, Option<usize>) {
    (depth.backlog, depth.due, depth.leased, depth.dead_letters)
}

async fn a_look_tells_rows_due_leased_and_dead<B: Bench>(b: B) {
    b.put_many("q", 5).await;
    b.send(Outgoing::new("q", &1).delay(HOUR * 10)).await;
    b.put("other").await;
    let dead = b.take("q").await;
    b.store().bury(&[death(dead)]).await.unwrap();
    b.take("q").await;
    let found = look(&b, &["q", "nobody's", "other"], 100).await;
    assert_eq!(
        found.iter().map(|depth| (&*depth.queue, counts(depth))).collect::<Vec<_>>(),
        [
            ("nobody's", (0, 0, 0, Some(0))),
            ("other", (1, 1, 0, Some(0))),
            ("q", (5, 3, 1, Some(1))),
        ]
    );
    assert_eq!(found[0].oldest_age, Duration::ZERO);
}

async fn the_age_is_that_of_the_oldest_row_that_waits<B: Bench>(b: B) {
    b.put("q").await;
    b.age(HOUR * 2).await;
    b.take("q").await;
    assert_eq!(look(&b, &["q"], 100).await[0].oldest_age, Duration::ZERO, "it is being handled");
    b.put("q").await;
    b.age(HOUR).await;
    b.send(Outgoing::new("q", &1).delay(HOUR)).await;
    let age = look(&b, &["q"], 100).await[0].oldest_age;
    about(i64::try_from(age.as_micros()).unwrap(), HOUR);
}

async fn a_look_reads_no_further_than_its_bound<B: Bench>(b: B) {
    b.put_many("q", 8).await;
    for lease in b.take_many("q", 4).await {
        b.store().bury(&[death(lease)]).await.unwrap();
    }
    assert_eq!(counts(&look(&b, &["q"], 3).await[0]), (3, 3, 0, Some(3)));
    // The alert for a full backlog adds them: rows that are handled come first.
    b.take("q").await;
    assert_eq!(counts(&look(&b, &["q"], 3).await[0]), (3, 2, 1, Some(3)));
}

async fn without_a_dead_letter_table_none_are_told<B: Bench>(b: B) {
    let b = b.without_dlq();
    b.put("q").await;
    assert_eq!(counts(&look(&b, &["q"], 10).await[0]), (1, 1, 0, None));
}

async fn only_postgresql_has_a_queue_of_notifications<B: SqlBench>(b: B) {
    for b in [b.without_dlq(), b] {
        for depth in look(&b, &["q", "other"], 10).await {
            let usage = depth.notify_usage;
            assert_eq!(usage.is_some(), B::DATABASE == Database::Postgres, "{depth:?}");
            assert!(usage.is_none_or(|usage| (0.0..=1.0).contains(&usage)), "{depth:?}");
        }
    }
}

/// Those whose timer is there already are not, nor are those that move none.
async fn an_ack_tells_how_many_messages_it_wrote<B: Bench>(b: B) {
    b.put("q").await;
    for timer in ["there", "later"] {
        b.send(Outgoing::new("next", &1).timer_id(timer).delay(HOUR)).await;
    }
    let lease = b.take("q").await;
    let extends =
        |timer: &str| Outgoing::new("next", &1).timer_id(timer).on_conflict(TimerConflict::Extend);
    let messages = vec![
        Outgoing::new("next", &1),
        Outgoing::new("next", &2),
        Outgoing::new("next", &3).timer_id("new"),
        Outgoing::new("a", &4),
        extends("there").delay(HOUR * 2),
        extends("later").delay(HOUR / 2),
    ];
    let acks = [(lease, messages)];
    let (landed, inserted) = ack_publishing_counted(b.store(), b.publisher(), acks).await.unwrap();
    assert_eq!(landed, [true]);
    assert_eq!(inserted, [("a".to_owned(), 1), ("next".to_owned(), 4)]);
    b.put("q").await;
    let acks = [(b.take("q").await, vec![Outgoing::new("next", &5).timer_id("new")])];
    let (landed, inserted) = ack_publishing_counted(b.store(), b.publisher(), acks).await.unwrap();
    assert_eq!(landed, [true]);
    assert_eq!(inserted.iter().map(|(_, rows)| rows).sum::<usize>(), 0);
}

mod in_both {
    use super::*;

    cases! {
        databases only, "memory notifies nobody":
        only_postgresql_has_a_queue_of_notifications,
    }
}

cases!(
    a_look_tells_rows_due_leased_and_dead,
    the_age_is_that_of_the_oldest_row_that_waits,
    a_look_reads_no_further_than_its_bound,
    without_a_dead_letter_table_none_are_told,
    an_ack_tells_how_many_messages_it_wrote,
);
