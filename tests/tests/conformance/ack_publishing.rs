//! What a handler returned is published by the statement that acks its row.

use std::time::Duration;

use outbox::Outgoing;
use outbox::testing::store::{Landed, Lease, Store, ack_publishing};
use serde_json::json;

use crate::bench::{Bench, Steps, TTL, about, refenced, retry};

const HOUR: Duration = Duration::from_secs(3600);

async fn ack<B: Bench>(b: &B, acks: impl IntoIterator<Item = (Lease, Vec<Outgoing>)>) -> Landed {
    ack_publishing(b.store(), b.publisher(), acks).await.unwrap()
}

fn reply(n: i32) -> Outgoing {
    Outgoing::new("replies", &n)
}

/// Payloads of a queue in order of id.
async fn payloads<B: Bench>(b: &B, queue: &str) -> Vec<String> {
    let rows = b.rows().await.into_iter().filter(|row| row.queue == queue);
    rows.map(|row| String::from_utf8(row.payload).unwrap()).collect()
}

async fn the_row_goes_and_its_messages_come<B: Bench>(b: B) {
    let id = b.put("q").await;
    let lease = b.take("q").await;
    assert_eq!(ack(&b, [(lease, vec![reply(1), reply(2)])]).await, [true]);
    assert!(b.find(id).await.is_none());
    assert_eq!(payloads(&b, "replies").await, ["1", "2"]);
    assert!(b.letters().await.is_empty());
}

async fn a_published_message_is_a_new_row<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    let message = Outgoing::new("replies", &json!({ "é": 1 }))
        .header("outbox-tracking-ids", "v")
        .correlation_id("c")
        .timer_id("t")
        .delay(HOUR);
    ack(&b, [(lease, vec![message])]).await;
    let row = b.rows().await.remove(0);
    assert!(row.id > lease.id);
    assert_eq!(row.payload, r#"{"é":1}"#.as_bytes());
    let mut headers = json!({ "correlation_id": "c", "content-type": "application/json" });
    headers["outbox-tracking-ids"] = "v".into();
    assert_eq!(row.headers, Some(headers));
    assert_eq!(row.timer_id.as_deref(), Some("t"));
    assert_eq!((row.attempts, row.deliveries), (0, 0));
    assert_eq!((row.first, row.last, row.acquired, row.token), (None, None, None, None));
    about(row.created - b.now().await, Duration::ZERO);
    about(row.due - b.now().await, HOUR);
}

/// It is made while the handler runs, and written when that has ended.
async fn a_delay_of_a_published_message_counts_from_the_ack<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    let message = reply(1).delay(HOUR).expires_in(2 * HOUR);
    let before = b.now().await;
    ack(&b, [(lease, vec![message])]).await;
    let row = b.rows().await.remove(0);
    assert!(row.created >= before, "{} {before}", row.created);
    assert!(row.due >= before + 3_600_000_000, "{} {before}", row.due);
}

async fn a_message_may_be_for_a_time<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    let at = std::time::UNIX_EPOCH + Duration::from_secs(4_102_444_800);
    ack(&b, [(lease, vec![reply(1).at(at)])]).await;
    assert_eq!(b.rows().await[0].due, 4_102_444_800_000_000);
}

async fn published_messages_are_claimed_in_their_order<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    ack(&b, [(lease, (0..20).map(reply).collect())]).await;
    let claimed = b.claim(&["replies"], 50).await;
    let bodies: Vec<_> = claimed.iter().map(|one| one.row.payload.to_vec()).collect();
    assert_eq!(bodies, (0..20).map(|n| n.to_string().into_bytes()).collect::<Vec<_>>());
}

async fn a_wrong_token_publishes_nothing<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    let before = b.rows().await;
    assert_eq!(ack(&b, [(refenced(lease), vec![reply(1)])]).await, [false]);
    assert_eq!(b.rows().await, before);
}

async fn a_lost_lease_publishes_nothing<B: Bench>(b: B) {
    b.put("q").await;
    let old = b.take("q").await;
    b.age(TTL).await;
    let new = b.take("q").await;
    let before = b.rows().await;
    assert_eq!(ack(&b, [(old, vec![reply(1)])]).await, [false]);
    assert_eq!(b.rows().await, before);
    assert_eq!(ack(&b, [(new, vec![reply(2)])]).await, [true]);
    assert_eq!(payloads(&b, "replies").await, ["2"]);
}

async fn a_row_given_back_publishes_nothing<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    b.store().retry(&[retry(lease, Duration::ZERO)]).await.unwrap();
    let before = b.rows().await;
    assert_eq!(ack(&b, [(lease, vec![reply(1)])]).await, [false]);
    assert_eq!(b.rows().await, before);
}

/// A repeat after an answer that was lost must not publish a second time.
async fn a_repeated_ack_publishes_once<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    assert_eq!(ack(&b, [(lease, vec![reply(1)])]).await, [true]);
    assert_eq!(ack(&b, [(lease, vec![reply(1)])]).await, [false]);
    assert_eq!(payloads(&b, "replies").await, ["1"]);
}

async fn of_a_batch_only_the_rows_still_held_publish<B: Bench>(b: B) {
    b.put_many("q", 5).await;
    let held = b.take_many("q", 5).await;
    let acks: Vec<_> = [3, 1, 4, 0, 2]
        .into_iter()
        .map(|n: i32| {
            let lease = held[usize::try_from(n).unwrap()];
            let lease = if n == 1 || n == 4 { refenced(lease) } else { lease };
            (lease, vec![reply(n), reply(n * 10)])
        })
        .collect();
    assert_eq!(ack(&b, acks).await, [true, false, false, true, true]);
    let mut published = payloads(&b, "replies").await;
    published.sort();
    assert_eq!(published, ["0", "0", "2", "20", "3", "30"]);
    for (n, lease) in held.iter().enumerate() {
        assert_eq!(b.find(lease.id).await.is_some(), n == 1 || n == 4, "row {n}");
    }
}

async fn of_rows_that_follow_each_other_one_that_is_gone_publishes_nothing<B: Bench>(b: B) {
    b.put_many("q", 50).await;
    let held = b.take_many("q", 50).await;
    assert_eq!(b.store().ack(&held[1..2]).await.unwrap(), [true]);
    let acks = held.into_iter().zip(0..).map(|(lease, n)| (lease, vec![reply(n)]));
    let landed = ack(&b, acks).await;
    assert!(landed.iter().enumerate().all(|(n, &landed)| landed == (n != 1)), "{landed:?}");
    let mut published = payloads(&b, "replies").await;
    published.sort_by_key(|n| n.parse::<i32>().unwrap());
    let all: Vec<_> = (0..50).filter(|n| *n != 1).map(|n| n.to_string()).collect();
    assert_eq!(published, all);
    assert_eq!(b.rows().await.len(), 49);
}

async fn of_two_tokens_for_one_row_the_right_one_publishes<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    let acks = [
        (refenced(lease), vec![reply(1)]),
        (lease, vec![reply(2)]),
        (refenced(lease), vec![reply(3)]),
    ];
    assert_eq!(ack(&b, acks).await, [false, true, false]);
    assert_eq!(payloads(&b, "replies").await, ["2"]);
}

async fn rows_without_messages_may_be_among_them<B: Bench>(b: B) {
    b.put_many("q", 3).await;
    let held = b.take_many("q", 3).await;
    let acks = [(held[0], vec![]), (held[1], vec![reply(1)]), (held[2], vec![])];
    assert_eq!(ack(&b, acks).await, [true; 3]);
    assert_eq!(payloads(&b, "replies").await, ["1"]);
    assert_eq!(b.rows().await.len(), 1);
}

async fn an_empty_call_does_nothing<B: Bench>(b: B) {
    b.put("q").await;
    let before = b.rows().await;
    assert!(ack(&b, []).await.is_empty());
    assert_eq!(b.rows().await, before);
}

async fn hundreds_of_rows_publish_in_one_call<B: Bench>(b: B) {
    b.send_batch((0..300).map(|n| Outgoing::new("q", &n)).collect()).await;
    let held = b.take_many("q", 300).await;
    let acks = held.iter().rev().map(|&lease| (lease, vec![reply(1), reply(2)]));
    assert_eq!(ack(&b, acks).await, vec![true; 300]);
    assert_eq!(payloads(&b, "replies").await.len(), 600);
    assert_eq!(b.rows().await.len(), 600);
}

async fn a_message_may_go_to_the_same_queue<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    ack(&b, [(lease, vec![Outgoing::new("q", &"again")])]).await;
    let claimed = b.claim(&["q"], 10).await;
    assert_eq!(claimed.len(), 1);
    assert_eq!(&*claimed[0].row.payload, b"\"again\"");
}

cases! {
    the_row_goes_and_its_messages_come,
    a_published_message_is_a_new_row,
    a_delay_of_a_published_message_counts_from_the_ack,
    a_message_may_be_for_a_time,
    published_messages_are_claimed_in_their_order,
    a_wrong_token_publishes_nothing,
    a_lost_lease_publishes_nothing,
    a_row_given_back_publishes_nothing,
    a_repeated_ack_publishes_once,
    of_a_batch_only_the_rows_still_held_publish,
    of_rows_that_follow_each_other_one_that_is_gone_publishes_nothing,
    of_two_tokens_for_one_row_the_right_one_publishes,
    rows_without_messages_may_be_among_them,
    an_empty_call_does_nothing,
    hundreds_of_rows_publish_in_one_call,
    a_message_may_go_to_the_same_queue,
}
