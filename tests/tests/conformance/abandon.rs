//! A claim whose answer was lost is given back by its token.

use outbox::Outgoing;
use outbox::testing::store::{Claim, Extend, Position, Store, new_token};

use crate::bench::{Bench, Steps, TTL, lease, retry};

async fn an_abandoned_claim_gives_all_its_rows_back<B: Bench>(b: B) {
    let ids = b.put_many("q", 3).await;
    let claim = b.claim_of(&["q"], 10);
    b.claim_by(&claim).await;
    assert_eq!(b.store().abandon(&claim).await.unwrap(), 3);
    for row in b.rows().await {
        assert_eq!((row.deliveries, row.attempts), (0, 0));
        assert_eq!((row.token, row.acquired), (None, None));
    }
    assert_eq!(b.claim_ids(&["q"], 10).await, ids);
}

async fn abandoning_leaves_the_rows_as_they_were_before<B: Bench>(b: B) {
    b.put_many("q", 2).await;
    let before = b.rows().await;
    let claim = b.claim_of(&["q"], 10);
    b.claim_by(&claim).await;
    b.store().abandon(&claim).await.unwrap();
    assert_eq!(b.rows().await, before);
}

async fn abandoning_gives_nothing_else_back<B: Bench>(b: B) {
    b.put_many("q", 2).await;
    b.put("other").await;
    b.claim(&["q"], 1).await;
    b.claim(&["other"], 1).await;
    let before = b.rows().await;
    let claim = b.claim_of(&["q", "other"], 10);
    assert_eq!(b.claim_by(&claim).await.len(), 1);
    assert_eq!(b.store().abandon(&claim).await.unwrap(), 1);
    assert_eq!(b.rows().await, before);
}

async fn rows_of_every_queue_of_the_claim_are_given_back<B: Bench>(b: B) {
    for queue in ["x", "y", "z"] {
        b.put(queue).await;
    }
    let claim = b.claim_of(&["x", "y", "z"], 10);
    b.claim_by(&claim).await;
    assert_eq!(b.store().abandon(&claim).await.unwrap(), 3);
    assert_eq!(b.claim(&["z", "x", "y"], 10).await.len(), 3);
}

async fn a_claim_that_took_nothing_gives_nothing_back<B: Bench>(b: B) {
    b.put("q").await;
    let before = b.rows().await;
    assert_eq!(b.store().abandon(&b.claim_of(&["q"], 10)).await.unwrap(), 0);
    assert_eq!(b.rows().await, before);
}

async fn abandoning_twice_is_abandoning_once<B: Bench>(b: B) {
    let id = b.put("q").await;
    let claim = b.claim_of(&["q"], 10);
    b.claim_by(&claim).await;
    assert_eq!(b.store().abandon(&claim).await.unwrap(), 1);
    assert_eq!(b.store().abandon(&claim).await.unwrap(), 0);
    assert_eq!(b.row(id).await.deliveries, 0);
}

/// Leased rows keep their places: those that others have in hand lie before its own.
async fn a_claim_behind_ten_thousand_leased_rows_is_given_back<B: Bench>(b: B) {
    for _ in 0..11 {
        b.send_batch((0..1000).map(|n| Outgoing::new("q", &n)).collect()).await;
    }
    let mut after = None;
    for limit in [5000, 5000, 100] {
        let claimed = b.claim_by(&Claim { after, ..b.claim_of(&["q"], limit) }).await;
        assert_eq!(claimed.len(), limit);
        after = claimed.iter().map(|one| Position::of(&one.row)).max();
    }
    let lost = Claim { after, ..b.claim_of(&["q"], 10) };
    assert_eq!(b.claim_by(&lost).await.len(), 10);
    assert_eq!(b.store().abandon(&lost).await.unwrap(), 10);
}

async fn a_row_taken_over_is_not_given_back<B: Bench>(b: B) {
    b.put("q").await;
    let lost = b.claim_of(&["q"], 10);
    b.claim_by(&lost).await;
    b.age(TTL).await;
    b.take("q").await;
    let before = b.rows().await;
    assert_eq!(b.store().abandon(&lost).await.unwrap(), 0);
    assert_eq!(b.rows().await, before);
}

async fn settled_rows_of_the_claim_stay_settled<B: Bench>(b: B) {
    b.put_many("q", 3).await;
    let claim = b.claim_of(&["q"], 10);
    let claimed = b.claim_by(&claim).await;
    b.store().ack(&[lease(&claimed[0])]).await.unwrap();
    b.store().retry(&[retry(lease(&claimed[1]), TTL)]).await.unwrap();
    let retried = b.row(claimed[1].row.id).await;
    assert_eq!(b.store().abandon(&claim).await.unwrap(), 1);
    assert_eq!(b.row(claimed[1].row.id).await, retried);
    assert_eq!(b.rows().await.len(), 2);
}

async fn a_lease_continued_under_another_token_is_kept<B: Bench>(b: B) {
    b.put("q").await;
    let claim = b.claim_of(&["q"], 10);
    let claimed = b.claim_by(&claim).await;
    let extend = Extend { lease: lease(&claimed[0]), token: new_token() };
    b.store().extend(&[extend]).await.unwrap();
    assert_eq!(b.store().abandon(&claim).await.unwrap(), 0);
}

/// It does not tell any more that its leases ran out, and the next claim would condemn
/// it for what others may have done.
async fn a_row_delivered_too_often_that_is_abandoned_no_longer_was<B: Bench>(b: B) {
    let ids = b.put_many("q", 2).await;
    b.set_deliveries(ids[0], 5).await;
    let claim = Claim { max_deliveries: Some(3), ..b.claim_of(&["q"], 10) };
    b.claim_by(&claim).await;
    assert_eq!(b.store().abandon(&claim).await.unwrap(), 2);
    assert_eq!((b.row(ids[0]).await.deliveries, b.row(ids[1]).await.deliveries), (2, 0));
}

async fn an_abandoned_count_never_goes_below_zero<B: Bench>(b: B) {
    let id = b.put("q").await;
    let claim = b.claim_of(&["q"], 1);
    b.claim_by(&claim).await;
    b.set_deliveries(id, 0).await;
    assert_eq!(b.store().abandon(&claim).await.unwrap(), 1);
    assert_eq!(b.row(id).await.deliveries, 0);
}

cases! {
    an_abandoned_claim_gives_all_its_rows_back,
    abandoning_leaves_the_rows_as_they_were_before,
    abandoning_gives_nothing_else_back,
    rows_of_every_queue_of_the_claim_are_given_back,
    a_claim_that_took_nothing_gives_nothing_back,
    a_claim_behind_ten_thousand_leased_rows_is_given_back,
    abandoning_twice_is_abandoning_once,
    a_row_taken_over_is_not_given_back,
    settled_rows_of_the_claim_stay_settled,
    a_lease_continued_under_another_token_is_kept,
    a_row_delivered_too_often_that_is_abandoned_no_longer_was,
    an_abandoned_count_never_goes_below_zero,
}
