//! When to look again.

use std::time::Duration;

use outbox::Outgoing;
use outbox::testing::store::Store;

use crate::bench::{Bench, Steps, TTL, about, retry};

const HOUR: Duration = Duration::from_secs(3600);

async fn next<B: Bench>(b: &B, queues: &[&str]) -> Option<Duration> {
    b.taken(&b.claim_of(queues, 0)).await.next
}

#[track_caller]
fn in_about(next: Option<Duration>, expected: Duration) {
    about(i64::try_from(next.unwrap().as_micros()).unwrap(), expected);
}

async fn later<B: Bench>(b: &B, queue: &str, delay: Duration) {
    b.send(Outgoing::new(queue, &1).delay(delay)).await;
}

async fn nothing_is_due_in_an_empty_table<B: Bench>(b: B) {
    assert_eq!(next(&b, &["q"]).await, None);
    b.put("q").await;
    assert_eq!(next(&b, &[]).await, None);
    assert_eq!(next(&b, &["other"]).await, None);
}

async fn the_next_row_to_come_is_told<B: Bench>(b: B) {
    later(&b, "q", HOUR * 3).await;
    in_about(next(&b, &["q"]).await, HOUR * 3);
    later(&b, "q", HOUR).await;
    later(&b, "q", HOUR * 2).await;
    in_about(next(&b, &["q"]).await, HOUR);
}

async fn the_soonest_of_several_queues_is_told<B: Bench>(b: B) {
    later(&b, "x", HOUR * 2).await;
    later(&b, "y", HOUR).await;
    later(&b, "z", HOUR / 2).await;
    in_about(next(&b, &["x", "y"]).await, HOUR);
    in_about(next(&b, &["x"]).await, HOUR * 2);
    in_about(next(&b, &["empty", "z", "x"]).await, HOUR / 2);
}

async fn a_lease_that_will_run_out_is_told<B: Bench>(b: B) {
    b.put("q").await;
    b.take("q").await;
    in_about(next(&b, &["q"]).await, TTL);
    b.age(TTL / 2).await;
    in_about(next(&b, &["q"]).await, TTL / 2);
}

async fn a_lease_that_ran_out_is_told_at_once<B: Bench>(b: B) {
    b.put("q").await;
    b.take("q").await;
    b.age(TTL * 2).await;
    // Not at once: somebody may have it locked, and whoever asks would spin.
    let next = next(&b, &["q"]).await.unwrap();
    assert!(next <= Duration::from_millis(100), "{next:?}");
    assert!(next >= Duration::from_millis(1) || B::IN_MEMORY, "{next:?}");
}

async fn the_oldest_of_several_leases_is_told<B: Bench>(b: B) {
    b.put_many("q", 2).await;
    b.take("q").await;
    b.age(TTL / 2).await;
    b.take("q").await;
    in_about(next(&b, &["q"]).await, TTL / 2);
}

async fn the_sooner_of_lease_and_row_to_come_is_told<B: Bench>(b: B) {
    later(&b, "q", TTL * 3).await;
    b.put("q").await;
    b.take("q").await;
    in_about(next(&b, &["q"]).await, TTL);
    later(&b, "q", TTL / 2).await;
    in_about(next(&b, &["q"]).await, TTL / 2);
}

/// It is asked after a claim: what is free and due was passed by, because
/// somebody has it locked, and asking again at once would spin.
async fn a_free_row_that_is_due_is_left_to_the_claim<B: Bench>(b: B) {
    b.put("q").await;
    assert_eq!(next(&b, &["q"]).await, None);
    later(&b, "q", HOUR).await;
    in_about(next(&b, &["q"]).await, HOUR);
}

async fn a_retried_row_is_told<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    b.store().retry(&[retry(lease, HOUR)]).await.unwrap();
    in_about(next(&b, &["q"]).await, HOUR);
}

async fn asking_changes_nothing<B: Bench>(b: B) {
    b.put_many("q", 2).await;
    b.take("q").await;
    let before = b.rows().await;
    next(&b, &["q"]).await;
    assert_eq!(b.rows().await, before);
}

cases! {
    nothing_is_due_in_an_empty_table,
    the_next_row_to_come_is_told,
    the_soonest_of_several_queues_is_told,
    a_lease_that_will_run_out_is_told,
    a_lease_that_ran_out_is_told_at_once,
    the_oldest_of_several_leases_is_told,
    the_sooner_of_lease_and_row_to_come_is_told,
    a_free_row_that_is_due_is_left_to_the_claim,
    a_retried_row_is_told,
    asking_changes_nothing,
}
