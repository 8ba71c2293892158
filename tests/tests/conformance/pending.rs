//! Looking at a queue without taking anything.

use std::time::Duration;

use outbox::Outgoing;

use crate::bench::{Bench, Steps, micros};

const MINUTE: Duration = Duration::from_secs(60);

async fn ids<B: Bench>(b: &B, queue: &str, limit: u32) -> Vec<i64> {
    b.pending(queue, limit).await.iter().map(|row| row.id).collect()
}

async fn rows_are_shown_in_order_of_due_time<B: Bench>(b: B) {
    let mut published = Vec::new();
    for minutes in [30, 10, 20, 0] {
        let message = Outgoing::new("q", &1).delay(MINUTE * minutes);
        published.push(b.send(message).await.id().unwrap());
    }
    assert_eq!(ids(&b, "q", 10).await, [3, 1, 2, 0].map(|n| published[n]));
}

async fn rows_due_together_are_shown_in_order_of_id<B: Bench>(b: B) {
    let at = std::time::SystemTime::UNIX_EPOCH + MINUTE;
    let batch = (0..5).map(|n| Outgoing::new("q", &n).at(at)).collect();
    let published: Vec<_> = b.send_batch(batch).await.iter().map(|one| one.id().unwrap()).collect();
    assert_eq!(ids(&b, "q", 10).await, published);
}

async fn no_more_than_the_limit_is_shown<B: Bench>(b: B) {
    let published = b.put_many("q", 4).await;
    assert_eq!(ids(&b, "q", 2).await, published[..2]);
    assert!(ids(&b, "q", 0).await.is_empty());
    assert_eq!(ids(&b, "q", u32::MAX).await, published);
}

async fn only_the_queue_is_shown<B: Bench>(b: B) {
    let id = b.put("q").await;
    b.put("other").await;
    assert_eq!(ids(&b, "q", 10).await, [id]);
    assert!(ids(&b, "none", 10).await.is_empty());
}

async fn leased_rows_are_shown_as_leased<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    let row = b.pending("q", 1).await.remove(0);
    assert_eq!(row.acquired_token, Some(lease.token));
    assert!(row.acquired_at.is_some());
    assert_eq!(row.deliveries_count, 1);
}

async fn a_shown_row_is_the_stored_row<B: Bench>(b: B) {
    let message = Outgoing::new("q", &"é").header("a", "b").timer_id("t").delay(MINUTE);
    let id = b.send(message).await.id().unwrap();
    let (row, raw) = (b.pending("q", 1).await.remove(0), b.row(id).await);
    assert_eq!((row.id, &row.queue, &row.timer_id), (raw.id, &raw.queue, &raw.timer_id));
    assert_eq!(row.payload, raw.payload);
    assert_eq!((micros(row.created_at), micros(row.next_attempt_at)), (raw.created, raw.due));
    assert_eq!(row.headers().unwrap().get("a"), Some("b"));
}

async fn looking_takes_nothing<B: Bench>(b: B) {
    b.put("q").await;
    let before = b.rows().await;
    b.pending("q", 10).await;
    assert_eq!(b.rows().await, before);
    assert_eq!(b.claim(&["q"], 10).await.len(), 1);
}

async fn debug_shows_no_secret<B: Bench>(b: B) {
    b.send(Outgoing::new("q", &"s3cret").header("token", "s3cret")).await;
    assert!(!format!("{:?}", b.pending("q", 1).await).contains("s3cret"));
}

cases! {
    rows_are_shown_in_order_of_due_time,
    rows_due_together_are_shown_in_order_of_id,
    no_more_than_the_limit_is_shown,
    only_the_queue_is_shown,
    leased_rows_are_shown_as_leased,
    a_shown_row_is_the_stored_row,
    looking_takes_nothing,
    debug_shows_no_secret,
}
