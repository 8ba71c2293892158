//! A message shares the fate of the transaction it was published in.

use std::time::Duration;

use outbox::testing::store::{Claim, Store};
use outbox::{Outgoing, Published};

use crate::bench::{Bench, Steps, about};

async fn add<B: Bench>(b: &B, tx: &mut B::Tx, queue: &str) -> i64 {
    b.publisher().publish(tx, queue, &1).await.unwrap().id().unwrap()
}

async fn a_committed_message_is_claimed_once<B: Bench>(b: B) {
    let id = b.put("q").await;
    assert_eq!(b.claim_ids(&["q"], 10).await, [id]);
    assert!(b.claim_ids(&["q"], 10).await.is_empty());
}

async fn a_rolled_back_message_is_never_claimed<B: Bench>(b: B) {
    let mut tx = b.begin().await;
    add(&b, &mut tx, "q").await;
    b.rollback(tx).await;
    b.assert_empty().await;
    assert!(b.claim_ids(&["q"], 10).await.is_empty());
}

async fn a_dropped_transaction_publishes_nothing<B: Bench>(b: B) {
    let mut tx = b.begin().await;
    add(&b, &mut tx, "q").await;
    drop(tx);
    let id = b.put("q").await;
    assert_eq!(b.claim_ids(&["q"], 10).await, [id]);
}

async fn a_savepoint_rollback_takes_only_its_messages<B: Bench>(b: B) {
    let mut tx = b.begin().await;
    let first = add(&b, &mut tx, "q").await;
    let mark = b.savepoint(&mut tx).await;
    add(&b, &mut tx, "q").await;
    b.rollback_to(&mut tx, &mark).await;
    let last = add(&b, &mut tx, "q").await;
    b.commit(tx).await;
    assert_eq!(b.claim_ids(&["q"], 10).await, [first, last]);
}

async fn a_released_savepoint_keeps_its_messages<B: Bench>(b: B) {
    let mut tx = b.begin().await;
    let first = add(&b, &mut tx, "q").await;
    let mark = b.savepoint(&mut tx).await;
    let second = add(&b, &mut tx, "q").await;
    b.release(&mut tx, mark).await;
    b.commit(tx).await;
    assert_eq!(b.claim_ids(&["q"], 10).await, [first, second]);
}

async fn an_outer_savepoint_takes_the_inner_one_back_too<B: Bench>(b: B) {
    let mut tx = b.begin().await;
    let first = add(&b, &mut tx, "q").await;
    let outer = b.savepoint(&mut tx).await;
    add(&b, &mut tx, "q").await;
    let inner = b.savepoint(&mut tx).await;
    add(&b, &mut tx, "q").await;
    b.release(&mut tx, inner).await;
    b.rollback_to(&mut tx, &outer).await;
    b.commit(tx).await;
    assert_eq!(b.claim_ids(&["q"], 10).await, [first]);
}

async fn a_released_savepoint_still_rolls_back_with_the_transaction<B: Bench>(b: B) {
    let mut tx = b.begin().await;
    let mark = b.savepoint(&mut tx).await;
    add(&b, &mut tx, "q").await;
    b.release(&mut tx, mark).await;
    b.rollback(tx).await;
    b.assert_empty().await;
}

async fn an_uncommitted_message_is_invisible<B: Bench>(b: B) {
    let mut tx = b.begin().await;
    let id = add(&b, &mut tx, "q").await;
    assert!(b.pending("q", 10).await.is_empty());
    b.commit(tx).await;
    assert_eq!(b.pending("q", 10).await[0].id, id);
}

/// The engine claims while producers have transactions open.
async fn an_open_transaction_keeps_no_claim_waiting<B: Bench>(b: B) {
    if !B::WRITERS_OVERLAP {
        println!("skipped: SQLite has one writer at a time");
        return;
    }
    let mut tx = b.begin().await;
    let open = add(&b, &mut tx, "q").await;
    let done = b.put("q").await;
    assert_eq!(b.claim_ids(&["q"], 10).await, [done]);
    b.commit(tx).await;
    assert_eq!(b.claim_ids(&["q"], 10).await, [open]);
}

async fn the_answer_names_the_row<B: Bench>(b: B) {
    let published = b.send(Outgoing::new("q", &1)).await;
    let rows = b.rows().await;
    assert_eq!(rows.len(), 1);
    assert_eq!(published, Published::Inserted(rows[0].id));
}

async fn ids_grow_in_the_order_of_publishing<B: Bench>(b: B) {
    let ids = b.put_many("q", 5).await;
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
}

async fn an_id_is_not_used_again<B: Bench>(b: B) {
    let first = b.put("q").await;
    let lease = b.take("q").await;
    b.store().ack(&[lease]).await.unwrap();
    assert!(b.put("q").await > first);
}

async fn a_new_row_has_spent_nothing<B: Bench>(b: B) {
    let id = b.put("q").await;
    let row = b.row(id).await;
    assert_eq!((row.attempts, row.deliveries), (0, 0));
    assert_eq!((row.first, row.last, row.acquired), (None, None, None));
    assert_eq!((row.token, row.timer_id), (None, None));
    about(b.now().await - row.created, Duration::ZERO);
    about(b.now().await - row.due, Duration::ZERO);
}

async fn one_transaction_may_publish_to_many_queues<B: Bench>(b: B) {
    let mut tx = b.begin().await;
    let (x, y) = (add(&b, &mut tx, "x").await, add(&b, &mut tx, "y").await);
    b.commit(tx).await;
    assert_eq!(b.claim_ids(&["x"], 10).await, [x]);
    assert_eq!(b.claim_ids(&["y"], 10).await, [y]);
}

/// A row that commits late has a lower id than rows that were handled before.
async fn a_late_commit_is_still_delivered<B: Bench>(b: B) {
    if !B::WRITERS_OVERLAP {
        println!("skipped: SQLite has one writer at a time");
        return;
    }
    let mut tx = b.begin().await;
    let late = add(&b, &mut tx, "q").await;
    let early = b.put("q").await;
    assert!(late < early);
    let lease = b.take("q").await;
    assert_eq!(lease.id, early);
    b.store().ack(&[lease]).await.unwrap();
    b.commit(tx).await;
    let claim: Claim = b.claim_of(&["q"], 10);
    let claimed = b.claim_by(&claim).await;
    assert_eq!(claimed[0].row.id, late);
}

cases! {
    a_committed_message_is_claimed_once,
    a_rolled_back_message_is_never_claimed,
    a_dropped_transaction_publishes_nothing,
    a_savepoint_rollback_takes_only_its_messages,
    a_released_savepoint_keeps_its_messages,
    an_outer_savepoint_takes_the_inner_one_back_too,
    a_released_savepoint_still_rolls_back_with_the_transaction,
    an_uncommitted_message_is_invisible,
    an_open_transaction_keeps_no_claim_waiting,
    the_answer_names_the_row,
    ids_grow_in_the_order_of_publishing,
    an_id_is_not_used_again,
    a_new_row_has_spent_nothing,
    one_transaction_may_publish_to_many_queues,
    a_late_commit_is_still_delivered,
}
