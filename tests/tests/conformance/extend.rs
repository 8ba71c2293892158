//! An extension starts the lease anew.

use std::time::Duration;

use outbox::testing::store::{Before, Extend, Store, new_alone_token, new_token};

use tokio::time::timeout;

use crate::bench::{Bench, Postgres, Steps, TTL, about};

async fn an_extension_keeps_others_away_for_a_whole_lease<B: Bench>(b: B) {
    let id = b.put("q").await;
    let lease = b.take("q").await;
    for _ in 0..4 {
        b.age(TTL * 3 / 4).await;
        assert!(b.claim(&["q"], 1).await.is_empty());
        let extend = Extend { lease, token: lease.token };
        assert_eq!(b.store().extend(&[extend]).await.unwrap(), [true]);
        about(b.now().await - b.row(id).await.acquired.unwrap(), Duration::ZERO);
    }
    b.age(TTL).await;
    assert_eq!(b.claim_ids(&["q"], 1).await, [id]);
}

async fn an_extension_changes_nothing_else<B: Bench>(b: B) {
    let id = b.put("q").await;
    let lease = b.take("q").await;
    let before = b.row(id).await;
    let extend = Extend { lease, token: lease.token };
    b.store().extend(&[extend]).await.unwrap();
    let after = b.row(id).await;
    assert_eq!(crate::bench::RawRow { acquired: before.acquired, ..after }, before);
}

async fn a_lease_may_go_on_under_another_token<B: Bench>(b: B) {
    let id = b.put("q").await;
    let lease = b.take("q").await;
    let token = new_token();
    assert_eq!(b.store().extend(&[Extend { lease, token }]).await.unwrap(), [true]);
    assert_eq!(b.row(id).await.token, Some(token));
    assert_eq!(b.store().ack(&[lease]).await.unwrap(), [false]);
    let lease = outbox::testing::store::Lease { token, ..lease };
    assert_eq!(b.store().ack(&[lease]).await.unwrap(), [true]);
}

async fn a_row_that_goes_on_alone_is_told_so<B: Bench>(b: B) {
    b.put("q").await;
    let lease = b.take("q").await;
    b.store().extend(&[Extend { lease, token: new_alone_token() }]).await.unwrap();
    b.age(TTL).await;
    assert_eq!(b.claim(&["q"], 1).await[0].before, Before::ExpiredAlone);
}

async fn each_row_of_a_batch_gets_its_own_token<B: Bench>(b: B) {
    let ids = b.put_many("q", 3).await;
    let leases = b.take_many("q", 3).await;
    let tokens = [new_token(), leases[1].token, new_token()];
    let batch = [2, 0, 1].map(|n| Extend { lease: leases[n], token: tokens[n] });
    assert_eq!(b.store().extend(&batch).await.unwrap(), [true; 3]);
    for (id, token) in ids.iter().zip(tokens) {
        assert_eq!(b.row(*id).await.token, Some(token));
    }
}

async fn a_row_that_is_locked_is_passed_by_and_told_apart_from_a_lost_one(b: Postgres) {
    b.put_many("q", 3).await;
    let leases = b.take_many("q", 3).await;
    assert_eq!(b.store().ack(&leases[..1]).await.unwrap(), [true]);
    let mut tx = b.begin().await;
    let lock = "SELECT FROM outbox WHERE id = $1 FOR UPDATE";
    sqlx::query(lock).bind(leases[1].id).execute(&mut *tx).await.unwrap();
    let extends: Vec<_> =
        leases.iter().map(|&lease| Extend { lease, token: lease.token }).collect();
    let extend = timeout(TTL, b.store().extend(&extends)).await.expect("nobody waits for it");
    assert_eq!(extend.unwrap(), [false, false, true]);
    assert_eq!(b.store().held(&leases).await.unwrap(), [false, true, true]);
    b.rollback(tx).await;
    assert_eq!(b.store().extend(&extends).await.unwrap(), [false, true, true]);
}

cases! {
    an_extension_keeps_others_away_for_a_whole_lease,
    an_extension_changes_nothing_else,
    a_lease_may_go_on_under_another_token,
    a_row_that_goes_on_alone_is_told_so,
    each_row_of_a_batch_gets_its_own_token,
}

mod locked {
    use super::a_row_that_is_locked_is_passed_by_and_told_apart_from_a_lost_one;

    cases! {
        postgres only, "nothing else locks single rows":
        a_row_that_is_locked_is_passed_by_and_told_apart_from_a_lost_one,
    }
}
