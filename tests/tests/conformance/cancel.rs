//! A timer is cancelled unless a claim holds it.

use std::time::Duration;

use outbox::testing::store::Store;
use outbox::{Outgoing, Published};

use crate::bench::{Bench, Steps, TTL, retry};

const HOUR: Duration = Duration::from_secs(3600);

fn timer(delay: Duration) -> Outgoing {
    Outgoing::new("q", &1).timer_id("t").delay(delay)
}

async fn cancel<B: Bench>(b: &B, queue: &str, name: &str) -> bool {
    let mut tx = b.begin().await;
    let cancelled = b.publisher().cancel_timer(&mut tx, queue, name).await.unwrap();
    b.commit(tx).await;
    cancelled
}

async fn a_cancelled_timer_never_fires<B: Bench>(b: B) {
    b.send(timer(HOUR)).await;
    assert!(cancel(&b, "q", "t").await);
    b.assert_empty().await;
    b.age(HOUR * 2).await;
    assert!(b.claim(&["q"], 10).await.is_empty());
}

async fn a_due_timer_can_be_cancelled_until_it_is_claimed<B: Bench>(b: B) {
    b.send(timer(Duration::ZERO)).await;
    assert!(cancel(&b, "q", "t").await);
    assert!(b.claim(&["q"], 10).await.is_empty());
}

async fn a_leased_timer_is_not_cancelled<B: Bench>(b: B) {
    b.send(timer(Duration::ZERO)).await;
    let lease = b.take("q").await;
    let before = b.rows().await;
    assert!(!cancel(&b, "q", "t").await);
    assert_eq!(b.rows().await, before);
    assert_eq!(b.store().ack(&[lease]).await.unwrap(), [true]);
}

async fn a_timer_with_an_expired_lease_is_not_cancelled<B: Bench>(b: B) {
    b.send(timer(Duration::ZERO)).await;
    b.take("q").await;
    b.age(TTL * 2).await;
    assert!(!cancel(&b, "q", "t").await);
    assert_eq!(b.claim(&["q"], 1).await.len(), 1);
}

async fn a_retried_timer_can_be_cancelled<B: Bench>(b: B) {
    b.send(timer(Duration::ZERO)).await;
    let lease = b.take("q").await;
    b.store().retry(&[retry(lease, HOUR)]).await.unwrap();
    assert!(cancel(&b, "q", "t").await);
    b.assert_empty().await;
}

async fn a_missing_timer_is_not_cancelled<B: Bench>(b: B) {
    b.put("q").await;
    let before = b.rows().await;
    assert!(!cancel(&b, "q", "t").await);
    assert_eq!(b.rows().await, before);
}

async fn a_timer_is_cancelled_once<B: Bench>(b: B) {
    b.send(timer(HOUR)).await;
    assert!(cancel(&b, "q", "t").await);
    assert!(!cancel(&b, "q", "t").await);
}

async fn only_the_timer_of_that_queue_is_cancelled<B: Bench>(b: B) {
    b.send(timer(HOUR)).await;
    b.send(Outgoing::new("other", &1).timer_id("t")).await;
    b.send(Outgoing::new("q", &1).timer_id("T")).await;
    assert!(cancel(&b, "q", "t").await);
    assert_eq!(b.rows().await.len(), 2);
}

async fn a_rolled_back_cancel_leaves_the_timer<B: Bench>(b: B) {
    let id = b.send(timer(Duration::ZERO)).await.id().unwrap();
    let before = b.rows().await;
    let mut tx = b.begin().await;
    assert!(b.publisher().cancel_timer(&mut tx, "q", "t").await.unwrap());
    b.rollback(tx).await;
    assert_eq!(b.rows().await, before);
    assert_eq!(b.claim_ids(&["q"], 1).await, [id]);
}

async fn a_cancel_after_a_savepoint_goes_back_with_it<B: Bench>(b: B) {
    let id = b.send(timer(Duration::ZERO)).await.id().unwrap();
    let mut tx = b.begin().await;
    let mark = b.savepoint(&mut tx).await;
    assert!(b.publisher().cancel_timer(&mut tx, "q", "t").await.unwrap());
    b.rollback_to(&mut tx, &mark).await;
    b.commit(tx).await;
    assert_eq!(b.claim_ids(&["q"], 1).await, [id]);
}

async fn a_cancelled_name_is_free_in_the_same_transaction<B: Bench>(b: B) {
    let old = b.send(timer(HOUR)).await.id().unwrap();
    let mut tx = b.begin().await;
    assert!(b.publisher().cancel_timer(&mut tx, "q", "t").await.unwrap());
    let new = b.publisher().send(&mut tx, timer(Duration::ZERO)).await.unwrap();
    b.commit(tx).await;
    assert!(matches!(new, Published::Inserted(id) if id != old));
    assert_eq!(b.claim_ids(&["q"], 10).await, [new.id().unwrap()]);
}

async fn a_cancel_writes_no_dead_letter<B: Bench>(b: B) {
    b.send(timer(HOUR)).await;
    assert!(cancel(&b, "q", "t").await);
    assert!(b.letters().await.is_empty());
}

cases! {
    a_cancelled_timer_never_fires,
    a_due_timer_can_be_cancelled_until_it_is_claimed,
    a_leased_timer_is_not_cancelled,
    a_timer_with_an_expired_lease_is_not_cancelled,
    a_retried_timer_can_be_cancelled,
    a_missing_timer_is_not_cancelled,
    a_timer_is_cancelled_once,
    only_the_timer_of_that_queue_is_cancelled,
    a_rolled_back_cancel_leaves_the_timer,
    a_cancel_after_a_savepoint_goes_back_with_it,
    a_cancelled_name_is_free_in_the_same_transaction,
    a_cancel_writes_no_dead_letter,
}
