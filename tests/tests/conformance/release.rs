//! A release gives the row back without an attempt.

use std::time::Duration;

use outbox::testing::store::{Lease, Release, Store};

use crate::bench::{Bench, Steps, about, lease};

const HOUR: Duration = Duration::from_secs(3600);

async fn give_back<B: Bench>(b: &B, lease: Lease, due_in: Option<Duration>, uncount: u64) {
    let release = Release { lease, due_in, uncount, claimed_at: None };
    assert_eq!(b.store().release(&[release]).await.unwrap(), [true]);
}

async fn a_release_makes_the_row_claimable_at_once<B: Bench>(b: B) {
    let id = b.put("q").await;
    let lease = b.take("q").await;
    give_back(&b, lease, None, 0).await;
    assert_eq!(b.claim_ids(&["q"], 1).await, [id]);
}

async fn a_release_keeps_the_place_in_the_queue<B: Bench>(b: B) {
    let ids = b.put_many("q", 2).await;
    let due = b.row(ids[0]).await.due;
    let lease = b.take("q").await;
    give_back(&b, lease, None, 0).await;
    assert_eq!(b.row(ids[0]).await.due, due);
    assert_eq!(b.claim_ids(&["q"], 2).await, ids);
}

async fn a_snoozed_row_is_due_after_its_delay<B: Bench>(b: B) {
    let id = b.put("q").await;
    b.age(HOUR * 5).await;
    let lease = b.take("q").await;
    give_back(&b, lease, Some(HOUR), 0).await;
    about(b.due_in(id).await, HOUR);
    b.age(HOUR / 2).await;
    assert!(b.claim(&["q"], 1).await.is_empty());
    b.age(HOUR / 2).await;
    assert_eq!(b.claim_ids(&["q"], 1).await, [id]);
}

async fn a_snooze_of_nothing_is_due_now<B: Bench>(b: B) {
    let id = b.put("q").await;
    b.age(HOUR).await;
    let lease = b.take("q").await;
    give_back(&b, lease, Some(Duration::ZERO), 0).await;
    about(b.due_in(id).await, Duration::ZERO);
    assert_eq!(b.claim_ids(&["q"], 1).await, [id]);
}

async fn a_release_spends_no_attempt<B: Bench>(b: B) {
    let id = b.put("q").await;
    let lease = b.take("q").await;
    give_back(&b, lease, Some(HOUR), 0).await;
    let row = b.row(id).await;
    assert_eq!((row.attempts, row.first, row.last), (0, None, None));
    assert_eq!((row.token, row.acquired), (None, None));
    assert_eq!(row.deliveries, 1);
}

async fn an_unstarted_delivery_is_not_counted<B: Bench>(b: B) {
    let id = b.put("q").await;
    for _ in 0..3 {
        let lease = b.take("q").await;
        give_back(&b, lease, None, 1).await;
        assert_eq!(b.row(id).await.deliveries, 0);
    }
    let lease = b.take("q").await;
    give_back(&b, lease, None, 0).await;
    assert_eq!(b.row(id).await.deliveries, 1);
}

async fn a_count_never_goes_below_zero<B: Bench>(b: B) {
    let id = b.put("q").await;
    let lease = b.take("q").await;
    b.set_deliveries(id, 0).await;
    give_back(&b, lease, None, 1).await;
    assert_eq!(b.row(id).await.deliveries, 0);
}

async fn each_row_of_a_batch_is_released_its_own_way<B: Bench>(b: B) {
    let ids = b.put_many("q", 3).await;
    let leases = b.take_many("q", 3).await;
    let ways = [(None, 1), (Some(HOUR), 0), (Some(Duration::ZERO), 1)];
    let release = |n: usize| Release {
        lease: leases[n],
        due_in: ways[n].0,
        uncount: ways[n].1,
        claimed_at: None,
    };
    let batch = [2, 0, 1].map(release);
    assert_eq!(b.store().release(&batch).await.unwrap(), [true; 3]);
    for (id, (due_in, uncount)) in ids.iter().zip(ways) {
        about(b.due_in(*id).await, due_in.unwrap_or_default());
        assert_eq!(b.row(*id).await.deliveries, 1 - i64::try_from(uncount).unwrap());
    }
}

/// A clock that was set back would give two claims of one count the same or a
/// smaller time.
async fn a_row_is_not_due_again_before_it_was_claimed<B: Bench>(b: B) {
    for (queue, due_in) in [("a", None), ("b", Some(Duration::ZERO)), ("c", Some(HOUR))] {
        let id = b.put(queue).await;
        let claimed = b.claim(&[queue], 1).await.remove(0);
        let ahead = claimed.row.acquired_at.unwrap() + HOUR * 5;
        let claimed_at = Some(ahead);
        let release = Release { lease: lease(&claimed), due_in, uncount: 1, claimed_at };
        assert_eq!(b.store().release(&[release]).await.unwrap(), [true]);
        let due = b.row(id).await.due;
        let ahead = ahead.duration_since(std::time::UNIX_EPOCH).unwrap().as_micros();
        assert_eq!(i128::from(due), i128::try_from(ahead).unwrap() + 1000);
        b.age(HOUR * 6).await;
        assert_eq!(b.claim_ids(&[queue], 1).await, [id]);
    }
}

cases! {
    a_release_makes_the_row_claimable_at_once,
    a_release_keeps_the_place_in_the_queue,
    a_snoozed_row_is_due_after_its_delay,
    a_snooze_of_nothing_is_due_now,
    a_release_spends_no_attempt,
    an_unstarted_delivery_is_not_counted,
    a_count_never_goes_below_zero,
    each_row_of_a_batch_is_released_its_own_way,
    a_row_is_not_due_again_before_it_was_claimed,
}
