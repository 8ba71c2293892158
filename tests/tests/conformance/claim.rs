//! Which rows a claim takes, and what it does to them.

use std::time::Duration;

use outbox::Outgoing;
use outbox::testing::store::{Lease, Release, Store, new_token};

use crate::bench::{Bench, Postgres, Steps, TTL, about, micros};

const MINUTE: Duration = Duration::from_secs(60);

async fn rows_come_in_order_of_due_time_then_id<B: Bench>(b: B) {
    let delays = [3, 1, 2, 1, 0];
    let mut ids = Vec::new();
    for minutes in delays {
        let message = Outgoing::new("q", &minutes).delay(MINUTE * minutes);
        ids.push(b.send(message).await.id().unwrap());
    }
    // Two rows due in the same instant, published late: the id decides.
    let instant = std::time::SystemTime::UNIX_EPOCH + MINUTE;
    for n in 0..2 {
        ids.push(b.send(Outgoing::new("q", &n).at(instant)).await.id().unwrap());
    }
    b.age(MINUTE * 4).await;
    let expected = [5, 6, 4, 1, 3, 2, 0].map(|n| ids[n]);
    assert_eq!(b.claim_ids(&["q"], 10).await, expected);
}

async fn the_oldest_rows_go_first_when_not_all_fit<B: Bench>(b: B) {
    let late = b.send(Outgoing::new("q", &1).delay(MINUTE)).await.id().unwrap();
    let early = b.put_many("q", 3).await;
    b.age(MINUTE * 2).await;
    assert_eq!(b.claim_ids(&["q"], 2).await, early[..2]);
    assert_eq!(b.claim_ids(&["q"], 2).await, [early[2], late]);
}

async fn of_rows_due_together_the_first_go_first<B: Bench>(b: B) {
    let instant = std::time::SystemTime::UNIX_EPOCH + MINUTE;
    let message = |n: i32| Outgoing::new("q", &n).at(instant);
    let published = b.send_batch((0..5).map(message).collect()).await;
    let ids: Vec<_> = published.iter().map(|one| one.id().unwrap()).collect();
    assert_eq!(b.claim_ids(&["q"], 2).await, ids[..2]);
    assert_eq!(b.claim_ids(&["q"], 2).await, ids[2..4]);
}

async fn a_claim_takes_no_more_than_its_limit<B: Bench>(b: B) {
    b.put_many("q", 5).await;
    assert_eq!(b.claim(&["q"], 3).await.len(), 3);
    assert_eq!(b.claim(&["q"], 3).await.len(), 2);
    assert_eq!(b.claim(&["q"], 3).await.len(), 0);
}

async fn a_claim_of_nothing_takes_nothing<B: Bench>(b: B) {
    b.put("q").await;
    let before = b.rows().await;
    assert!(b.claim(&["q"], 0).await.is_empty());
    assert!(b.claim(&[], 10).await.is_empty());
    assert_eq!(b.rows().await, before);
}

async fn a_huge_limit_takes_all<B: Bench>(b: B) {
    b.put_many("q", 3).await;
    assert_eq!(b.claim(&["q"], usize::MAX).await.len(), 3);
}

async fn a_claim_takes_only_its_queues<B: Bench>(b: B) {
    let (x, y) = (b.put("x").await, b.put("y").await);
    b.put("X").await;
    b.put("x ").await;
    assert_eq!(b.claim_ids(&["x"], 10).await, [x]);
    assert_eq!(b.claim_ids(&["y"], 10).await, [y]);
    assert!(b.claim_ids(&["z"], 10).await.is_empty());
}

async fn a_claim_of_several_queues_takes_the_oldest_of_all<B: Bench>(b: B) {
    let mut ids = Vec::new();
    for (queue, minutes) in [("x", 4), ("y", 1), ("x", 2), ("y", 3), ("z", 0)] {
        let message = Outgoing::new(queue, &1).delay(MINUTE * minutes);
        ids.push(b.send(message).await.id().unwrap());
    }
    b.age(MINUTE * 5).await;
    assert_eq!(b.claim_ids(&["x", "y"], 3).await, [ids[1], ids[2], ids[3]]);
    assert_eq!(b.claim_ids(&["x", "y"], 3).await, [ids[0]]);
}

async fn a_queue_named_twice_gives_each_row_once<B: Bench>(b: B) {
    let id = b.put("q").await;
    assert_eq!(b.claim_ids(&["q", "q"], 10).await, [id]);
    assert_eq!(b.row(id).await.deliveries, 1);
}

async fn a_claim_leases_each_row_under_its_token<B: Bench>(b: B) {
    b.put_many("q", 2).await;
    let claim = b.claim_of(&["q"], 10);
    let claimed = b.claim_by(&claim).await;
    assert!(claimed.iter().all(|one| one.row.acquired_token == Some(claim.token)));
    for row in b.rows().await {
        assert_eq!(row.token, Some(claim.token));
        about(b.now().await - row.acquired.unwrap(), Duration::ZERO);
    }
}

async fn a_claim_counts_one_delivery<B: Bench>(b: B) {
    let id = b.put("q").await;
    for deliveries in 1..=3 {
        let claimed = b.claim(&["q"], 1).await;
        assert_eq!(claimed[0].row.deliveries_count, deliveries);
        assert_eq!(b.row(id).await.deliveries.unsigned_abs(), deliveries);
        assert_eq!(claimed[0].row.attempts_count, 0);
        b.age(TTL).await;
    }
}

async fn a_claim_hands_out_the_row_as_it_is_stored<B: Bench>(b: B) {
    let message = Outgoing::new("q", &"é").header("a", "b").timer_id("t");
    let id = b.send(message).await.id().unwrap();
    let row = b.claim(&["q"], 1).await.remove(0).row;
    let raw = b.row(id).await;
    assert_eq!((row.id, &row.queue), (raw.id, &raw.queue));
    assert_eq!(row.payload, raw.payload);
    assert_eq!(row.timer_id, raw.timer_id);
    assert_eq!(row.acquired_token, raw.token);
    assert_eq!(row.acquired_at.map(micros), raw.acquired);
    assert_eq!(micros(row.created_at), raw.created);
    assert_eq!(micros(row.next_attempt_at), raw.due);
    assert_eq!(row.headers().unwrap().get("a"), Some("b"));
    assert_eq!((row.first_attempt_at, row.last_attempt_at), (None, None));
}

async fn a_claim_skips_leased_rows<B: Bench>(b: B) {
    let ids = b.put_many("q", 3).await;
    assert_eq!(b.claim_ids(&["q"], 1).await, ids[..1]);
    assert_eq!(b.claim_ids(&["q"], 10).await, ids[1..]);
}

async fn a_claim_moves_no_due_time<B: Bench>(b: B) {
    let id = b.put("q").await;
    let before = b.row(id).await;
    b.take("q").await;
    let after = b.row(id).await;
    assert_eq!((after.due, after.created), (before.due, before.created));
}

async fn a_claim_leaves_other_rows_alone<B: Bench>(b: B) {
    b.put("q").await;
    let others = [b.put("other").await, b.put_many("q", 2).await[1]];
    let before = [b.row(others[0]).await, b.row(others[1]).await];
    b.claim(&["q"], 2).await;
    assert_eq!([b.row(others[0]).await, b.row(others[1]).await], before);
}

async fn of_many_rows_those_in_their_midst_that_are_not_to_be_had_are_left<B: Bench>(b: B) {
    let first = b.put_many("q", 40).await;
    let held = b.take_many("q", 40).await;
    let back =
        |lease: &Lease| Release { lease: *lease, due_in: None, uncount: 0, claimed_at: None };
    let (leased, given_back) = (held[20], [&held[..20], &held[21..]].concat());
    let landed = b.store().release(&given_back.iter().map(back).collect::<Vec<_>>()).await;
    assert_eq!(landed.unwrap(), [true; 39]);
    let other = b.put("other").await;
    let second = b.put_many("q", 20).await;
    let later = b.send(Outgoing::new("q", &1).delay(MINUTE)).await.id().unwrap();
    let third = b.put_many("q", 20).await;
    let left = [leased.id, other, later];
    let mut before = b.rows().await;
    before.retain(|row| left.contains(&row.id));
    let mut due = [first, second, third].concat();
    due.retain(|id| !left.contains(id));
    assert_eq!(b.claim_ids(&["q"], 100).await, due);
    let mut after = b.rows().await;
    after.retain(|row| left.contains(&row.id));
    assert_eq!((after, before.len()), (before, 3));
}

async fn a_row_that_a_transaction_has_open_is_passed_by<B: Bench>(b: B) {
    if !B::WRITERS_OVERLAP {
        println!("skipped: SQLite has one writer at a time");
        return;
    }
    b.send(Outgoing::new("q", &1).timer_id("t")).await;
    let free = b.put("q").await;
    let mut tx = b.begin().await;
    assert!(b.publisher().cancel_timer(&mut tx, "q", "t").await.unwrap());
    assert_eq!(b.claim_ids(&["q"], 10).await, [free]);
    b.rollback(tx).await;
    assert_eq!(b.claim(&["q"], 10).await.len(), 1);
}

async fn tokens_are_fresh<B: Bench>(b: B) {
    let (one, two) = (b.claim_of(&["q"], 1).token, b.claim_of(&["q"], 1).token);
    assert_ne!(one, two);
    assert_ne!(new_token(), new_token());
    // A token of an earlier claim is as good as any: nothing is leased under it.
    b.put_many("q", 2).await;
    let mut claim = b.claim_of(&["q"], 1);
    let first = b.claim_by(&claim).await;
    claim.token = new_token();
    let second = b.claim_by(&claim).await;
    assert_ne!(first[0].row.acquired_token, second[0].row.acquired_token);
}

/// A table without statistics, or with strange ones, is read in any order.
async fn the_oldest_rows_go_first_whatever_the_plan(b: Postgres) {
    let other = b.with_settings([("enable_indexscan", "off"), ("enable_bitmapscan", "off")]);
    let late = b.send(Outgoing::new("q", &1).delay(MINUTE)).await.id().unwrap();
    let early = b.put_many("q", 3).await;
    b.age(MINUTE * 2).await;
    assert_eq!(other.claim_ids(&["q"], 2).await, early[..2]);
    assert_eq!(other.claim_ids(&["q"], 2).await, [early[2], late]);
    other.store().close().await;
}

cases! {
    rows_come_in_order_of_due_time_then_id,
    the_oldest_rows_go_first_when_not_all_fit,
    of_rows_due_together_the_first_go_first,
    a_claim_takes_no_more_than_its_limit,
    a_claim_of_nothing_takes_nothing,
    a_huge_limit_takes_all,
    a_claim_takes_only_its_queues,
    a_claim_of_several_queues_takes_the_oldest_of_all,
    a_queue_named_twice_gives_each_row_once,
    a_claim_leases_each_row_under_its_token,
    a_claim_counts_one_delivery,
    a_claim_hands_out_the_row_as_it_is_stored,
    a_claim_skips_leased_rows,
    a_claim_moves_no_due_time,
    a_claim_leaves_other_rows_alone,
    of_many_rows_those_in_their_midst_that_are_not_to_be_had_are_left,
    a_row_that_a_transaction_has_open_is_passed_by,
    tokens_are_fresh,
}

mod plans {
    use super::the_oldest_rows_go_first_whatever_the_plan;

    cases! {
        postgres only, "only PostgreSQL changes its plans": the_oldest_rows_go_first_whatever_the_plan,
    }
}
