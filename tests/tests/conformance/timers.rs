//! A timer name stands for at most one live row of its queue.

use std::time::Duration;

use outbox::testing::store::{Release, Store};
use outbox::{Outgoing, Published, TimerConflict};

use crate::bench::{Bench, Steps, TTL, about, death, retry};

const HOUR: Duration = Duration::from_secs(3600);

fn timer(n: i32, delay: Duration) -> Outgoing {
    Outgoing::new("q", &n).header("n", n).timer_id("t").delay(delay)
}

fn extending(n: i32, delay: Duration) -> Outgoing {
    timer(n, delay).on_conflict(TimerConflict::Extend)
}

/// Publishes the first message of a timer; its id.
async fn first<B: Bench>(b: &B, delay: Duration) -> i64 {
    b.send(timer(1, delay)).await.id().unwrap()
}

async fn payload<B: Bench>(b: &B, id: i64) -> (Vec<u8>, Option<i64>) {
    let row = b.row(id).await;
    (row.payload, row.headers.unwrap()["n"].as_i64())
}

async fn a_free_name_is_inserted<B: Bench>(b: B) {
    let published = b.send(timer(1, HOUR)).await;
    let id = published.id().unwrap();
    assert_eq!(published, Published::Inserted(id));
    assert_eq!(b.row(id).await.timer_id.as_deref(), Some("t"));
    about(b.due_in(id).await, HOUR);
}

async fn a_free_name_is_inserted_by_extend_too<B: Bench>(b: B) {
    let published = b.send(extending(1, HOUR)).await;
    assert!(matches!(published, Published::Inserted(_)));
    about(b.due_in(published.id().unwrap()).await, HOUR);
}

async fn a_taken_name_writes_nothing<B: Bench>(b: B) {
    first(&b, HOUR).await;
    let before = b.rows().await;
    assert_eq!(b.send(timer(2, HOUR * 2)).await, Published::Duplicate);
    let ignoring = timer(3, Duration::ZERO).on_conflict(TimerConflict::Ignore);
    assert_eq!(b.send(ignoring).await, Published::Duplicate);
    assert_eq!(b.rows().await, before);
}

async fn a_leased_name_writes_nothing<B: Bench>(b: B) {
    first(&b, Duration::ZERO).await;
    b.take("q").await;
    let before = b.rows().await;
    assert_eq!(b.send(timer(2, HOUR)).await, Published::Duplicate);
    assert_eq!(b.rows().await, before);
}

async fn a_leased_name_is_not_extended<B: Bench>(b: B) {
    first(&b, Duration::ZERO).await;
    let lease = b.take("q").await;
    let before = b.rows().await;
    assert_eq!(b.send(extending(2, HOUR)).await, Published::Duplicate);
    assert_eq!(b.rows().await, before);
    assert_eq!(b.store().ack(&[lease]).await.unwrap(), [true]);
}

async fn an_expired_lease_still_holds_the_name<B: Bench>(b: B) {
    first(&b, Duration::ZERO).await;
    b.take("q").await;
    b.age(TTL * 2).await;
    assert_eq!(b.send(timer(2, HOUR)).await, Published::Duplicate);
    assert_eq!(b.send(extending(2, HOUR)).await, Published::Duplicate);
}

/// Who puts something off whenever it is asked for again means the last one.
async fn the_same_delay_again_brings_the_second_message<B: Bench>(b: B) {
    let id = first(&b, HOUR).await;
    for n in 2..50 {
        assert_eq!(b.send(extending(n, HOUR)).await, Published::Extended(id));
        assert_eq!(payload(&b, id).await, (n.to_string().into_bytes(), Some(n.into())));
    }
}

async fn a_later_time_moves_the_row<B: Bench>(b: B) {
    let id = first(&b, HOUR).await;
    assert_eq!(b.send(extending(2, HOUR * 2)).await, Published::Extended(id));
    about(b.due_in(id).await, HOUR * 2);
    assert_eq!(payload(&b, id).await, (b"2".to_vec(), Some(2)));
    assert_eq!(b.rows().await.len(), 1);
}

/// Its time to expire counts from there.
async fn a_moved_row_was_published_when_it_was_moved<B: Bench>(b: B) {
    let id = first(&b, HOUR * 3).await;
    b.age(HOUR * 2).await;
    assert_eq!(b.send(extending(2, HOUR * 3)).await, Published::Extended(id));
    about(b.now().await - b.row(id).await.created, Duration::ZERO);
    b.age(HOUR * 2).await;
    assert_eq!(b.send(extending(3, Duration::ZERO)).await, Published::Kept(id));
    about(b.now().await - b.row(id).await.created, HOUR * 2);
}

async fn an_earlier_time_changes_nothing<B: Bench>(b: B) {
    let id = first(&b, HOUR * 2).await;
    let before = b.rows().await;
    assert_eq!(b.send(extending(2, HOUR)).await, Published::Kept(id));
    assert_eq!(b.rows().await, before);
}

async fn the_same_time_changes_nothing<B: Bench>(b: B) {
    let at = std::time::UNIX_EPOCH + Duration::from_secs(4_102_444_800);
    let message = |n: i32| Outgoing::new("q", &n).timer_id("t").at(at);
    let id = b.send(message(1)).await.id().unwrap();
    let before = b.rows().await;
    let extending = message(2).on_conflict(TimerConflict::Extend);
    assert_eq!(b.send(extending).await, Published::Kept(id));
    assert_eq!(b.rows().await, before);
}

async fn failed_once<B: Bench>(b: &B) -> i64 {
    let id = first(b, Duration::ZERO).await;
    let lease = b.take("q").await;
    b.store().retry(&[retry(lease, HOUR)]).await.unwrap();
    id
}

async fn a_later_time_gives_a_fresh_retry_budget<B: Bench>(b: B) {
    let id = failed_once(&b).await;
    assert_eq!(b.send(extending(2, HOUR * 2)).await, Published::Extended(id));
    let row = b.row(id).await;
    assert_eq!((row.attempts, row.first, row.last, row.deliveries), (0, None, None, 0));
}

async fn an_earlier_time_keeps_the_spent_attempts<B: Bench>(b: B) {
    let id = failed_once(&b).await;
    let before = b.row(id).await;
    assert_eq!((before.attempts, before.first.is_some()), (1, true));
    assert_eq!(b.send(extending(2, Duration::ZERO)).await, Published::Kept(id));
    assert_eq!(b.row(id).await, before);
}

async fn a_released_timer_can_be_extended<B: Bench>(b: B) {
    let id = first(&b, Duration::ZERO).await;
    let lease = b.take("q").await;
    let release = Release { lease, due_in: None, uncount: 1, claimed_at: None };
    b.store().release(&[release]).await.unwrap();
    assert_eq!(b.send(extending(2, HOUR)).await, Published::Extended(id));
    assert!(b.claim(&["q"], 1).await.is_empty());
}

async fn an_extended_timer_fires_once<B: Bench>(b: B) {
    let id = first(&b, HOUR).await;
    b.send(extending(2, HOUR * 2)).await;
    b.age(HOUR).await;
    assert!(b.claim(&["q"], 10).await.is_empty());
    b.age(HOUR).await;
    assert_eq!(b.claim_ids(&["q"], 10).await, [id]);
}

async fn the_name_is_free_after_an_ack<B: Bench>(b: B) {
    let id = first(&b, Duration::ZERO).await;
    let lease = b.take("q").await;
    b.store().ack(&[lease]).await.unwrap();
    let published = b.send(timer(2, Duration::ZERO)).await;
    assert!(matches!(published, Published::Inserted(new) if new != id));
}

async fn the_name_is_free_after_a_dead_letter<B: Bench>(b: B) {
    first(&b, Duration::ZERO).await;
    let lease = b.take("q").await;
    b.store().bury(&[death(lease)]).await.unwrap();
    assert!(matches!(b.send(timer(2, Duration::ZERO)).await, Published::Inserted(_)));
    assert_eq!(b.letters().await[0].timer_id.as_deref(), Some("t"));
}

async fn the_name_is_not_free_while_the_row_is_retried<B: Bench>(b: B) {
    failed_once(&b).await;
    assert_eq!(b.send(timer(2, Duration::ZERO)).await, Published::Duplicate);
}

async fn two_queues_may_have_the_same_timer<B: Bench>(b: B) {
    first(&b, HOUR).await;
    let other = Outgoing::new("other", &2).timer_id("t").on_conflict(TimerConflict::Extend);
    assert!(matches!(b.send(other).await, Published::Inserted(_)));
    assert_eq!(b.rows().await.len(), 2);
}

async fn names_are_compared_exactly<B: Bench>(b: B) {
    for name in ["t", "T", "t ", "é", "e\u{301}", "ß", "ss"] {
        let published = b.send(Outgoing::new("q", &1).timer_id(name)).await;
        assert!(matches!(published, Published::Inserted(_)), "{name:?}");
    }
}

async fn a_rolled_back_timer_leaves_the_name_free<B: Bench>(b: B) {
    let mut tx = b.begin().await;
    b.publisher().send(&mut tx, timer(1, HOUR)).await.unwrap();
    b.rollback(tx).await;
    assert!(matches!(b.send(timer(2, HOUR)).await, Published::Inserted(_)));
}

async fn a_rolled_back_extension_changes_nothing<B: Bench>(b: B) {
    let id = first(&b, HOUR).await;
    let before = b.rows().await;
    let mut tx = b.begin().await;
    let published = b.publisher().send(&mut tx, extending(2, HOUR * 2)).await.unwrap();
    assert_eq!(published, Published::Extended(id));
    b.rollback(tx).await;
    assert_eq!(b.rows().await, before);
}

async fn a_timer_set_and_extended_is_rolled_back_whole<B: Bench>(b: B) {
    let mut tx = b.begin().await;
    for hours in 1..4 {
        b.publisher().send(&mut tx, extending(1, HOUR * hours)).await.unwrap();
    }
    b.rollback(tx).await;
    b.assert_empty().await;
    first(&b, HOUR).await;
    let before = b.rows().await;
    let mut tx = b.begin().await;
    for hours in 2..4 {
        b.publisher().send(&mut tx, extending(2, HOUR * hours)).await.unwrap();
    }
    b.rollback(tx).await;
    assert_eq!(b.rows().await, before);
}

async fn an_extension_after_a_savepoint_goes_back_with_it<B: Bench>(b: B) {
    let mut tx = b.begin().await;
    let id = b.publisher().send(&mut tx, timer(1, HOUR)).await.unwrap().id().unwrap();
    let mark = b.savepoint(&mut tx).await;
    b.publisher().send(&mut tx, extending(2, HOUR * 2)).await.unwrap();
    b.rollback_to(&mut tx, &mark).await;
    b.commit(tx).await;
    about(b.due_in(id).await, HOUR);
    assert_eq!(payload(&b, id).await, (b"1".to_vec(), Some(1)));
}

async fn one_transaction_may_publish_and_extend<B: Bench>(b: B) {
    let mut tx = b.begin().await;
    let published = b.publisher().send(&mut tx, extending(1, HOUR)).await.unwrap();
    let id = published.id().unwrap();
    assert_eq!(published, Published::Inserted(id));
    let again = b.publisher().send(&mut tx, timer(2, HOUR)).await.unwrap();
    assert_eq!(again, Published::Duplicate);
    let later = b.publisher().send(&mut tx, extending(3, HOUR * 2)).await.unwrap();
    assert_eq!(later, Published::Extended(id));
    b.commit(tx).await;
    assert_eq!(payload(&b, id).await.0, b"3");
}

/// A duplicate is no error: the transaction goes on.
async fn a_duplicate_leaves_the_transaction_usable<B: Bench>(b: B) {
    first(&b, HOUR).await;
    let mut tx = b.begin().await;
    b.publisher().send(&mut tx, timer(2, HOUR)).await.unwrap();
    let id = b.publisher().publish(&mut tx, "fine", &1).await.unwrap().id().unwrap();
    b.commit(tx).await;
    assert_eq!(b.claim_ids(&["fine"], 10).await, [id]);
}

/// Whoever comes second waits for the first and finds the name taken.
async fn of_two_transactions_one_gets_the_name<B: Bench>(b: B) {
    let mut tx = b.begin().await;
    b.publisher().send(&mut tx, timer(1, HOUR)).await.unwrap();
    let (second, ()) = tokio::join!(b.send(timer(2, HOUR)), b.commit(tx));
    assert_eq!(second, Published::Duplicate);
    let rows = b.rows().await;
    assert_eq!((rows.len(), &*rows[0].payload), (1, &b"1"[..]));
}

cases! {
    a_free_name_is_inserted,
    a_free_name_is_inserted_by_extend_too,
    a_taken_name_writes_nothing,
    a_leased_name_writes_nothing,
    a_leased_name_is_not_extended,
    an_expired_lease_still_holds_the_name,
    the_same_delay_again_brings_the_second_message,
    a_later_time_moves_the_row,
    a_moved_row_was_published_when_it_was_moved,
    an_earlier_time_changes_nothing,
    the_same_time_changes_nothing,
    a_later_time_gives_a_fresh_retry_budget,
    an_earlier_time_keeps_the_spent_attempts,
    a_released_timer_can_be_extended,
    an_extended_timer_fires_once,
    the_name_is_free_after_an_ack,
    the_name_is_free_after_a_dead_letter,
    the_name_is_not_free_while_the_row_is_retried,
    two_queues_may_have_the_same_timer,
    names_are_compared_exactly,
    a_rolled_back_timer_leaves_the_name_free,
    a_rolled_back_extension_changes_nothing,
    a_timer_set_and_extended_is_rolled_back_whole,
    an_extension_after_a_savepoint_goes_back_with_it,
    one_transaction_may_publish_and_extend,
    a_duplicate_leaves_the_transaction_usable,
    of_two_transactions_one_gets_the_name,
}
