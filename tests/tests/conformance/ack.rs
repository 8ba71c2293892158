//! An ack deletes the row, and only that.

use std::time::Duration;

use outbox::testing::store::Store;

use crate::bench::{Bench, Steps, TTL};

async fn an_acked_row_is_gone_for_good<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    b.store().ack(&[lease]).await.unwrap();
    b.assert_empty().await;
    b.age(TTL * 2).await;
    assert!(b.claim(&["q"], 10).await.is_empty());
}

async fn an_ack_writes_no_dead_letter<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    b.store().ack(&[lease]).await.unwrap();
    assert!(b.letters().await.is_empty());
}

async fn an_ack_leaves_the_other_rows_of_the_claim<B: Bench>(b: B) {
    b.put_many("q", 3).await;
    let leases = b.take_many("q", 3).await;
    let before = b.rows().await;
    b.store().ack(&leases[1..2]).await.unwrap();
    assert_eq!(b.rows().await, [before[0].clone(), before[2].clone()]);
}

async fn a_repeated_ack_lands_once<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    assert_eq!(b.store().ack(&[lease]).await.unwrap(), [true]);
    assert_eq!(b.store().ack(&[lease]).await.unwrap(), [false]);
}

async fn a_row_is_settled_in_one_way_only<B: Bench>(b: B) {
    let id = b.put("q").await;
    let lease = b.take("q").await;
    b.store().retry(&[crate::bench::retry(lease, Duration::ZERO)]).await.unwrap();
    assert_eq!(b.store().ack(&[lease]).await.unwrap(), [false]);
    assert_eq!(b.store().bury(&[crate::bench::death(lease)]).await.unwrap(), [false]);
    assert_eq!(b.claim_ids(&["q"], 1).await, [id]);
    assert!(b.letters().await.is_empty());
}

/// Fifty rows, seven of them taken over by another claim.
async fn of_a_late_batch_exactly_the_rows_still_held_are_acked<B: Bench>(b: B) {
    b.put_many("q", 7).await;
    let lost = b.take_many("q", 7).await;
    b.age(TTL).await;
    b.take_many("q", 7).await;
    b.put_many("q", 43).await;
    let mut batch = b.take_many("q", 43).await;
    batch.splice(20..20, lost);
    let landed = b.store().ack(&batch).await.unwrap();
    assert_eq!(landed.iter().filter(|&&landed| landed).count(), 43);
    assert_eq!(landed[20..27], [false; 7]);
    assert_eq!(b.rows().await.len(), 7);
}

cases! {
    an_acked_row_is_gone_for_good,
    an_ack_writes_no_dead_letter,
    an_ack_leaves_the_other_rows_of_the_claim,
    a_repeated_ack_lands_once,
    a_row_is_settled_in_one_way_only,
    of_a_late_batch_exactly_the_rows_still_held_are_acked,
}
