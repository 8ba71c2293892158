//! Timers in a batch behave as timers published one by one.

use std::time::Duration;

use outbox::testing::store::Store;
use outbox::{Outgoing, Published, TimerConflict};

use crate::bench::{Bench, Steps, about, retry};

const HOUR: Duration = Duration::from_secs(3600);

fn timer(name: &str, n: i32, delay: Duration) -> Outgoing {
    Outgoing::new("q", &n).timer_id(name).delay(delay)
}

fn extending(name: &str, n: i32, delay: Duration) -> Outgoing {
    timer(name, n, delay).on_conflict(TimerConflict::Extend)
}

async fn each_message_has_its_own_answer<B: Bench>(b: B) {
    let ids: Vec<i64> = b
        .send_batch(vec![timer("a", 1, HOUR), timer("b", 1, HOUR), timer("c", 1, HOUR)])
        .await
        .iter()
        .map(|one| one.id().unwrap())
        .collect();
    let published = b
        .send_batch(vec![
            Outgoing::new("q", &2),
            timer("a", 2, HOUR * 2),
            extending("b", 2, HOUR * 2),
            extending("new", 2, HOUR),
            extending("c", 2, Duration::ZERO),
            Outgoing::new("q", &2),
        ])
        .await;
    assert!(matches!(published[0], Published::Inserted(_)));
    assert_eq!(published[1], Published::Duplicate);
    assert_eq!(published[2], Published::Extended(ids[1]));
    assert!(matches!(published[3], Published::Inserted(_)));
    assert_eq!(published[4], Published::Kept(ids[2]));
    assert!(matches!(published[5], Published::Inserted(_)));
    assert!(published[0].id() < published[5].id());
    let payload = async |id: i64| b.row(id).await.payload;
    assert_eq!(payload(ids[0]).await, b"1");
    assert_eq!(payload(ids[1]).await, b"2");
    assert_eq!(payload(ids[2]).await, b"1");
    about(b.due_in(ids[0]).await, HOUR);
    about(b.due_in(ids[1]).await, HOUR * 2);
    about(b.due_in(ids[2]).await, HOUR);
    assert_eq!(b.rows().await.len(), 6);
}

async fn the_same_time_changes_nothing<B: Bench>(b: B) {
    let now = Duration::from_micros(b.now().await.unsigned_abs());
    let then = std::time::SystemTime::UNIX_EPOCH + now + HOUR;
    let at = |name: &str, n: i32| {
        let timer = Outgoing::new("q", &n).timer_id(name).at(then);
        timer.on_conflict(TimerConflict::Extend)
    };
    let first = b.send_batch(vec![at("a", 1), at("b", 1)]).await;
    let before = b.rows().await;
    let ids = first.iter().map(|one| Published::Kept(one.id().unwrap()));
    assert_eq!(b.send_batch(vec![at("a", 2), at("b", 2)]).await, ids.collect::<Vec<_>>());
    assert_eq!(b.rows().await, before);
}

async fn a_leased_timer_is_a_duplicate<B: Bench>(b: B) {
    b.send_batch(vec![timer("a", 1, Duration::ZERO), timer("b", 1, Duration::ZERO)]).await;
    b.take_many("q", 2).await;
    let before = b.rows().await;
    let batch = vec![timer("a", 2, HOUR), extending("b", 2, HOUR)];
    assert_eq!(b.send_batch(batch).await, [Published::Duplicate; 2]);
    assert_eq!(b.rows().await, before);
}

async fn a_later_time_gives_a_fresh_retry_budget<B: Bench>(b: B) {
    let ids: Vec<i64> = b
        .send_batch(vec![timer("a", 1, Duration::ZERO), timer("b", 1, Duration::ZERO)])
        .await
        .iter()
        .map(|one| one.id().unwrap())
        .collect();
    let leases = b.take_many("q", 2).await;
    b.store().retry(&[retry(leases[0], HOUR), retry(leases[1], HOUR)]).await.unwrap();
    b.age(HOUR / 2).await;
    let kept = b.row(ids[1]).await;
    let batch = vec![extending("a", 2, HOUR * 2), extending("b", 2, Duration::ZERO)];
    let published = b.send_batch(batch).await;
    assert_eq!(published, [Published::Extended(ids[0]), Published::Kept(ids[1])]);
    let row = b.row(ids[0]).await;
    assert_eq!((row.attempts, row.first, row.last, row.deliveries), (0, None, None, 0));
    about(b.now().await - row.created, Duration::ZERO);
    assert_eq!(b.row(ids[1]).await, kept);
}

async fn the_same_timer_of_two_queues_is_two_rows<B: Bench>(b: B) {
    let batch = vec![timer("a", 1, HOUR), Outgoing::new("other", &2).timer_id("a")];
    let published = b.send_batch(batch).await;
    assert!(published.iter().all(|one| matches!(one, Published::Inserted(_))));
    let again = vec![
        Outgoing::new("other", &3).timer_id("a").delay(HOUR).on_conflict(TimerConflict::Extend),
        timer("a", 3, HOUR * 2),
    ];
    let answers = b.send_batch(again).await;
    assert_eq!(answers, [Published::Extended(published[1].id().unwrap()), Published::Duplicate]);
}

async fn a_batch_of_duplicates_writes_nothing<B: Bench>(b: B) {
    b.send_batch(vec![timer("a", 1, HOUR), timer("b", 1, HOUR)]).await;
    let before = b.rows().await;
    let again = vec![timer("b", 2, HOUR * 2), timer("a", 2, HOUR * 2)];
    assert_eq!(b.send_batch(again).await, [Published::Duplicate; 2]);
    assert_eq!(b.rows().await, before);
}

async fn payloads_and_headers_stay_with_their_timer<B: Bench>(b: B) {
    let names = ["c", "a", "b"];
    let message = |n: usize| {
        let n = i32::try_from(n).unwrap();
        timer(names[n.unsigned_abs() as usize], n, HOUR).header("n", n)
    };
    let published = b.send_batch((0..3).map(message).collect()).await;
    for (n, one) in published.iter().enumerate() {
        let row = b.row(one.id().unwrap()).await;
        assert_eq!(row.timer_id.as_deref(), Some(names[n]));
        assert_eq!(row.payload, n.to_string().as_bytes());
        assert_eq!(row.headers.unwrap()["n"], n);
    }
}

cases! {
    each_message_has_its_own_answer,
    the_same_time_changes_nothing,
    a_leased_timer_is_a_duplicate,
    a_later_time_gives_a_fresh_retry_budget,
    the_same_timer_of_two_queues_is_two_rows,
    a_batch_of_duplicates_writes_nothing,
    payloads_and_headers_stay_with_their_timer,
}
