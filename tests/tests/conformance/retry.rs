//! A retry puts the row off and counts the attempt.

use std::time::Duration;

use outbox::testing::store::Store;

use crate::bench::{Bench, Steps, TTL, about, retry};

const HOUR: Duration = Duration::from_secs(3600);

async fn a_retried_row_is_due_after_its_delay<B: Bench>(b: B) {
    let id = b.put("q").await;
    b.age(HOUR * 5).await;
    let lease = b.take("q").await;
    b.store().retry(&[retry(lease, HOUR)]).await.unwrap();
    about(b.due_in(id).await, HOUR);
    b.age(HOUR / 2).await;
    assert!(b.claim(&["q"], 1).await.is_empty());
    b.age(HOUR / 2).await;
    assert_eq!(b.claim_ids(&["q"], 1).await, [id]);
}

async fn a_retry_gives_the_lease_back<B: Bench>(b: B) {
    let id = b.put("q").await;
    let lease = b.take("q").await;
    b.store().retry(&[retry(lease, Duration::ZERO)]).await.unwrap();
    let row = b.row(id).await;
    assert_eq!((row.token, row.acquired), (None, None));
    assert_eq!(b.claim_ids(&["q"], 1).await, [id]);
}

async fn a_retry_counts_one_attempt_and_no_delivery<B: Bench>(b: B) {
    let id = b.put("q").await;
    for attempts in 1..=3 {
        let lease = b.take("q").await;
        b.store().retry(&[retry(lease, Duration::ZERO)]).await.unwrap();
        let row = b.row(id).await;
        assert_eq!((row.attempts, row.deliveries), (attempts, attempts));
    }
}

async fn the_first_attempt_time_stays_and_the_last_moves<B: Bench>(b: B) {
    let id = b.put("q").await;
    let lease = b.take("q").await;
    b.store().retry(&[retry(lease, Duration::ZERO)]).await.unwrap();
    let row = b.row(id).await;
    about(b.now().await - row.first.unwrap(), Duration::ZERO);
    assert_eq!(row.first, row.last);
    b.age(HOUR).await;
    let lease = b.take("q").await;
    b.store().retry(&[retry(lease, Duration::ZERO)]).await.unwrap();
    let (row, now) = (b.row(id).await, b.now().await);
    about(now - row.first.unwrap(), HOUR);
    about(now - row.last.unwrap(), Duration::ZERO);
}

async fn a_claim_tells_of_earlier_attempts<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    b.store().retry(&[retry(lease, Duration::ZERO)]).await.unwrap();
    let row = b.claim(&["q"], 1).await.remove(0).row;
    assert_eq!((row.attempts_count, row.deliveries_count), (1, 2));
    assert!(row.first_attempt_at.is_some() && row.first_attempt_at == row.last_attempt_at);
}

async fn created_at_is_unaffected_by_retries<B: Bench>(b: B) {
    let id = b.put("q").await;
    let created = b.row(id).await.created;
    for _ in 0..3 {
        let lease = b.take("q").await;
        b.store().retry(&[retry(lease, Duration::ZERO)]).await.unwrap();
    }
    assert_eq!(b.row(id).await.created, created);
}

async fn a_retry_touches_nothing_of_the_message<B: Bench>(b: B) {
    let message = outbox::Outgoing::new("q", &1).header("a", "b").timer_id("t");
    let id = b.send(message).await.id().unwrap();
    let before = b.row(id).await;
    let lease = b.take("q").await;
    b.store().retry(&[retry(lease, HOUR)]).await.unwrap();
    let after = b.row(id).await;
    assert_eq!((&after.queue, &after.payload), (&before.queue, &before.payload));
    assert_eq!((&after.headers, &after.timer_id), (&before.headers, &before.timer_id));
}

async fn each_row_of_a_batch_has_its_own_delay<B: Bench>(b: B) {
    let ids = b.put_many("q", 3).await;
    let leases = b.take_many("q", 3).await;
    let delays = [HOUR * 3, Duration::ZERO, HOUR];
    let batch = [2, 0, 1].map(|n| retry(leases[n], delays[n]));
    assert_eq!(b.store().retry(&batch).await.unwrap(), [true; 3]);
    for (id, delay) in ids.iter().zip(delays) {
        about(b.due_in(*id).await, delay);
    }
}

async fn a_retry_counts_from_the_settle_not_from_the_claim<B: Bench>(b: B) {
    let id = b.put("q").await;
    let lease = b.take("q").await;
    b.age(TTL / 2).await;
    b.store().retry(&[retry(lease, HOUR)]).await.unwrap();
    about(b.due_in(id).await, HOUR);
}

cases! {
    a_retried_row_is_due_after_its_delay,
    a_retry_gives_the_lease_back,
    a_retry_counts_one_attempt_and_no_delivery,
    the_first_attempt_time_stays_and_the_last_moves,
    a_claim_tells_of_earlier_attempts,
    created_at_is_unaffected_by_retries,
    a_retry_touches_nothing_of_the_message,
    each_row_of_a_batch_has_its_own_delay,
    a_retry_counts_from_the_settle_not_from_the_claim,
}
