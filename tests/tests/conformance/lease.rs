//! How long a lease keeps others away, and what the next claim learns.

use std::time::Duration;

use outbox::testing::store::{Before, Claim, Release, Store, new_alone_token};

use crate::bench::{Bench, Steps, TTL, about, lease, retry};

async fn a_lease_keeps_others_away_until_it_runs_out<B: Bench>(b: B) {
    let id = b.put("q").await;
    b.take("q").await;
    b.age(TTL / 2).await;
    assert!(b.claim(&["q"], 1).await.is_empty());
    b.age(TTL / 2).await;
    assert_eq!(b.claim_ids(&["q"], 1).await, [id]);
}

async fn a_reclaim_takes_a_new_token_and_a_whole_lease<B: Bench>(b: B) {
    let id = b.put("q").await;
    let first = b.take("q").await;
    b.age(TTL).await;
    let second = b.take("q").await;
    assert_ne!(first.token, second.token);
    let row = b.row(id).await;
    assert_eq!((row.token, row.deliveries), (Some(second.token), 2));
    about(b.now().await - row.acquired.unwrap(), Duration::ZERO);
    b.age(TTL / 2).await;
    assert!(b.claim(&["q"], 1).await.is_empty());
}

async fn a_reclaim_spends_no_attempt<B: Bench>(b: B) {
    let id = b.put("q").await;
    b.take("q").await;
    b.age(TTL).await;
    b.take("q").await;
    let row = b.row(id).await;
    assert_eq!((row.attempts, row.first, row.last), (0, None, None));
}

async fn the_claimer_says_how_long_leases_count<B: Bench>(b: B) {
    b.put("q").await;
    b.take("q").await;
    b.age(Duration::from_secs(120)).await;
    let short = Claim { lease_ttl: Duration::from_secs(100), ..b.claim_of(&["q"], 1) };
    assert_eq!(b.claim_by(&short).await.len(), 1);
}

async fn an_endless_lease_never_runs_out<B: Bench>(b: B) {
    b.put("q").await;
    b.take("q").await;
    b.age(TTL * 100).await;
    let endless = Claim { lease_ttl: Duration::MAX, ..b.claim_of(&["q"], 1) };
    assert!(b.claim_by(&endless).await.is_empty());
}

async fn expired_rows_come_in_their_old_place<B: Bench>(b: B) {
    let mut ids = b.put_many("q", 2).await;
    b.claim(&["q"], 2).await;
    b.age(TTL).await;
    ids.push(b.put("q").await);
    assert_eq!(b.claim_ids(&["q"], 10).await, ids);
}

async fn previous<B: Bench>(b: &B) -> Before {
    b.claim(&["q"], 1).await[0].before
}

async fn a_first_claim_finds_nothing_before_it<B: Bench>(b: B) {
    b.put("q").await;
    assert_eq!(previous(&b).await, Before::Settled);
}

async fn an_expired_lease_is_told<B: Bench>(b: B) {
    b.put("q").await;
    b.take("q").await;
    b.age(TTL).await;
    assert_eq!(previous(&b).await, Before::Expired);
}

async fn an_expired_lease_of_a_row_that_ran_alone_is_told<B: Bench>(b: B) {
    b.put("q").await;
    let alone = Claim { token: new_alone_token(), ..b.claim_of(&["q"], 1) };
    b.claim_by(&alone).await;
    b.age(TTL).await;
    assert_eq!(previous(&b).await, Before::ExpiredAlone);
    b.age(TTL).await;
    assert_eq!(previous(&b).await, Before::Expired);
}

async fn each_row_of_a_claim_tells_its_own_past<B: Bench>(b: B) {
    let ids = b.put_many("q", 2).await;
    b.take("q").await;
    let alone = Claim { token: new_alone_token(), ..b.claim_of(&["q"], 1) };
    b.claim_by(&alone).await;
    b.age(TTL).await;
    let fresh = b.put("q").await;
    let claimed = b.claim(&["q"], 10).await;
    let told: Vec<_> = claimed.iter().map(|one| (one.row.id, one.before)).collect();
    let expected =
        [(ids[0], Before::Expired), (ids[1], Before::ExpiredAlone), (fresh, Before::Settled)];
    assert_eq!(told, expected);
}

async fn a_retried_row_was_settled<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    b.store().retry(&[retry(lease, Duration::ZERO)]).await.unwrap();
    assert_eq!(previous(&b).await, Before::Settled);
}

async fn a_released_row_was_settled<B: Bench>(b: B) {
    b.put("q").await;
    let alone = Claim { token: new_alone_token(), ..b.claim_of(&["q"], 1) };
    let claimed = b.claim_by(&alone).await;
    let release = Release { lease: lease(&claimed[0]), due_in: None, uncount: 1, claimed_at: None };
    b.store().release(&[release]).await.unwrap();
    assert_eq!(previous(&b).await, Before::Settled);
}

async fn an_abandoned_row_was_settled<B: Bench>(b: B) {
    b.put("q").await;
    let claim = b.claim_of(&["q"], 1);
    b.claim_by(&claim).await;
    b.store().abandon(&claim).await.unwrap();
    assert_eq!(previous(&b).await, Before::Settled);
}

cases! {
    a_lease_keeps_others_away_until_it_runs_out,
    a_reclaim_takes_a_new_token_and_a_whole_lease,
    a_reclaim_spends_no_attempt,
    the_claimer_says_how_long_leases_count,
    an_endless_lease_never_runs_out,
    expired_rows_come_in_their_old_place,
    a_first_claim_finds_nothing_before_it,
    an_expired_lease_is_told,
    an_expired_lease_of_a_row_that_ran_alone_is_told,
    each_row_of_a_claim_tells_its_own_past,
    a_retried_row_was_settled,
    a_released_row_was_settled,
    an_abandoned_row_was_settled,
}
