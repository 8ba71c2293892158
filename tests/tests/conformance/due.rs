//! When a message is due: by the store's clock, and only then.

use std::time::{Duration, SystemTime};

use outbox::testing::store::{Release, Store};
use outbox::{Outgoing, TimerConflict};

use crate::bench::{Bench, Steps, about, retry};

const HOUR: Duration = Duration::from_secs(3600);
const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

fn at(micros: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros.unsigned_abs())
}

async fn a_delayed_message_is_claimed_only_when_due<B: Bench>(b: B) {
    let id = b.send(Outgoing::new("q", &1).delay(HOUR)).await.id().unwrap();
    about(b.due_in(id).await, HOUR);
    assert!(b.claim_ids(&["q"], 10).await.is_empty());
    b.age(HOUR / 2).await;
    assert!(b.claim_ids(&["q"], 10).await.is_empty());
    b.age(HOUR / 2).await;
    assert_eq!(b.claim_ids(&["q"], 10).await, [id]);
}

async fn a_message_for_a_time_is_claimed_only_then<B: Bench>(b: B) {
    let time = at(b.now().await) + HOUR;
    let id = b.send(Outgoing::new("q", &1).at(time)).await.id().unwrap();
    about(b.due_in(id).await, HOUR);
    assert!(b.claim_ids(&["q"], 10).await.is_empty());
    b.age(HOUR).await;
    assert_eq!(b.claim_ids(&["q"], 10).await, [id]);
}

async fn a_time_is_stored_to_the_microsecond<B: Bench>(b: B) {
    let time = 4_102_444_800_123_456;
    let id = b.send(Outgoing::new("q", &1).at(at(time))).await.id().unwrap();
    assert_eq!(b.row(id).await.due, time);
}

async fn a_time_in_the_past_is_due_at_once<B: Bench>(b: B) {
    let past = at(b.now().await) - HOUR;
    let id = b.send(Outgoing::new("q", &1).at(past)).await.id().unwrap();
    assert_eq!(b.claim_ids(&["q"], 10).await, [id]);
}

async fn a_time_before_1970_is_due_at_once<B: Bench>(b: B) {
    let past = SystemTime::UNIX_EPOCH - HOUR;
    let id = b.send(Outgoing::new("q", &1).at(past)).await.id().unwrap();
    assert_eq!(b.claim_ids(&["q"], 10).await, [id]);
}

async fn the_last_second_of_9999_is_accepted<B: Bench>(b: B) {
    let last = SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_799);
    let id = b.send(Outgoing::new("q", &1).at(last)).await.id().unwrap();
    assert_eq!(b.row(id).await.due, 253_402_300_799_000_000);
    assert_eq!(b.pending("q", 1).await[0].next_attempt_at, last);
    assert!(b.claim_ids(&["q"], 10).await.is_empty());
}

async fn no_delay_is_due_at_once<B: Bench>(b: B) {
    let id = b.send(Outgoing::new("q", &1).delay(Duration::ZERO)).await.id().unwrap();
    assert_eq!(b.claim_ids(&["q"], 10).await, [id]);
}

async fn an_endless_delay_is_ten_years<B: Bench>(b: B) {
    let id = b.send(Outgoing::new("q", &1).delay(Duration::MAX)).await.id().unwrap();
    about(b.due_in(id).await, TEN_YEARS);
}

async fn an_endless_delay_in_a_batch_is_ten_years<B: Bench>(b: B) {
    let batch = vec![Outgoing::new("q", &1).delay(Duration::MAX), Outgoing::new("q", &2)];
    let published = b.send_batch(batch).await;
    about(b.due_in(published[0].id().unwrap()).await, TEN_YEARS);
    about(b.due_in(published[1].id().unwrap()).await, Duration::ZERO);
}

async fn an_endless_retry_delay_is_ten_years<B: Bench>(b: B) {
    let id = b.put("q").await;
    let lease = b.take("q").await;
    assert_eq!(b.store().retry(&[retry(lease, Duration::MAX)]).await.unwrap(), [true]);
    about(b.due_in(id).await, TEN_YEARS);
}

async fn an_endless_snooze_is_ten_years<B: Bench>(b: B) {
    let id = b.put("q").await;
    let lease = b.take("q").await;
    let release = Release { lease, due_in: Some(Duration::MAX), uncount: 0, claimed_at: None };
    assert_eq!(b.store().release(&[release]).await.unwrap(), [true]);
    about(b.due_in(id).await, TEN_YEARS);
}

async fn a_delay_does_not_move_created_at<B: Bench>(b: B) {
    let id = b.send(Outgoing::new("q", &1).delay(HOUR)).await.id().unwrap();
    about(b.now().await - b.row(id).await.created, Duration::ZERO);
}

/// A transaction may be long: its delays count from the call.
async fn times_are_those_of_the_call_not_of_the_transaction<B: Bench>(b: B) {
    let now = |queue| Outgoing::new(queue, &1);
    let due = |queue| Outgoing::new(queue, &1).delay(HOUR);
    let moving = |name| due("q").timer_id(name).on_conflict(TimerConflict::Extend);
    // One for each statement that inserts.
    let calls = [
        (Duration::ZERO, vec![now("q")]),
        (HOUR, vec![due("q")]),
        (HOUR, vec![due("q").timer_id("a")]),
        (HOUR, vec![moving("b")]),
        (HOUR, vec![due("q"), due("q")]),
        (Duration::ZERO, vec![now("q"), now("other")]),
        (HOUR, vec![due("q"), due("other")]),
        (HOUR, vec![due("q").timer_id("c"), due("other")]),
        (HOUR, vec![moving("d"), due("other")]),
    ];
    let publisher = b.publisher();
    let mut tx = b.begin().await;
    let mut called = Vec::new();
    for (delay, mut messages) in calls {
        called.extend(vec![(b.now().await, delay); messages.len()]);
        if messages.len() == 1 {
            publisher.send(&mut tx, messages.remove(0)).await.unwrap();
        } else {
            publisher.publish_batch(&mut tx, messages).await.unwrap();
        }
    }
    b.commit(tx).await;
    let rows = b.rows().await;
    assert_eq!(rows.len(), called.len());
    for (row, (called, delay)) in rows.iter().zip(called) {
        let delay = i64::try_from(delay.as_micros()).unwrap();
        assert!(row.created > called && row.due > called + delay, "{called}: {row:?}");
    }
}

cases! {
    a_delayed_message_is_claimed_only_when_due,
    a_message_for_a_time_is_claimed_only_then,
    a_time_is_stored_to_the_microsecond,
    a_time_in_the_past_is_due_at_once,
    a_time_before_1970_is_due_at_once,
    the_last_second_of_9999_is_accepted,
    no_delay_is_due_at_once,
    an_endless_delay_is_ten_years,
    an_endless_delay_in_a_batch_is_ten_years,
    an_endless_retry_delay_is_ten_years,
    an_endless_snooze_is_ten_years,
    a_delay_does_not_move_created_at,
}

mod transaction_time {
    use super::times_are_those_of_the_call_not_of_the_transaction;

    cases! {
        postgres only, "a transaction has no clock of its own, or the clock is too coarse to tell":
        times_are_those_of_the_call_not_of_the_transaction,
    }
}
