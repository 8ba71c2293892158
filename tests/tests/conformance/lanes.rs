//! A claim that expects plenty learns whether others claim from the same queue.

use outbox::testing::store::{Claim, Expects, Taken};
use sqlx::{Postgres as Pg, Transaction};

use crate::bench::{Postgres, SqlBench, Steps};

/// Tables of other schemas share the names of places.
fn own(b: &Postgres) -> String {
    format!("{}q", b.schema())
}

/// Two places are kept for claims under way; as if other claims had these.
async fn others(b: &Postgres, places: &[i64], queue: &str) -> Transaction<'static, Pg> {
    let mut others = b.pool().begin().await.unwrap();
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, place))
        FROM unnest($2::bigint[]) AS place";
    let name = format!("{} claims {queue}", b.names().channel());
    sqlx::query(lock).bind(name).bind(places).execute(&mut *others).await.unwrap();
    others
}

async fn expecting(b: &Postgres, queue: &str) -> Taken {
    b.taken(&Claim { expects: Expects::Plenty, ..b.claim_of(&[queue], 10) }).await
}

async fn who_claims_beside_two_others_is_told_so_and_takes_its_rows(b: Postgres) {
    let queue = &own(&b);
    let ids = b.put_many(queue, 3).await;
    let others = others(&b, &[0, 1], queue).await;
    let taken = expecting(&b, queue).await;
    assert!(taken.crowded);
    let got: Vec<_> = taken.rows.iter().map(|claimed| claimed.row.id).collect();
    assert_eq!(got, ids);
    others.rollback().await.unwrap();
    assert!(!expecting(&b, queue).await.crowded, "they are gone");
}

async fn who_claims_beside_one_other_is_not_crowded(b: Postgres) {
    let queue = &own(&b);
    for place in [0, 1] {
        let other = others(&b, &[place], queue).await;
        assert!(!expecting(&b, queue).await.crowded);
        other.rollback().await.unwrap();
    }
}

async fn who_claims_from_another_queue_is_not_crowded(b: Postgres) {
    let queue = &own(&b);
    let others = others(&b, &[0, 1], &format!("{queue}.busy")).await;
    assert!(!expecting(&b, queue).await.crowded);
    others.rollback().await.unwrap();
}

async fn who_expects_less_does_not_ask(b: Postgres) {
    let queue = &own(&b);
    let others = others(&b, &[0, 1], queue).await;
    for expects in [Expects::Few, Expects::Many] {
        b.put(queue).await;
        let taken = b.taken(&Claim { expects, ..b.claim_of(&[queue], 10) }).await;
        assert!(!taken.crowded);
        assert_eq!(taken.rows.len(), 1);
    }
    others.rollback().await.unwrap();
}

async fn a_claim_keeps_no_place_when_it_is_over(b: Postgres) {
    let queue = &own(&b);
    b.put(queue).await;
    expecting(&b, queue).await;
    let name = format!("{} claims {queue}", b.names().channel());
    let held = format!(
        "SELECT count(*) FROM pg_locks, generate_series(0, 1) AS place,
            hashtextextended('{name}', place) AS lock
        WHERE locktype = 'advisory' AND (classid::bigint << 32 | objid::bigint) = lock"
    );
    assert_eq!(b.number(&held).await, 0);
    let others = others(&b, &[0, 1], queue).await;
    assert_eq!(b.number(&held).await, 2, "the question is the right one");
    others.rollback().await.unwrap();
}

cases! {
    postgres only, "elsewhere claims take turns anyway":
    who_claims_beside_two_others_is_told_so_and_takes_its_rows,
    who_claims_beside_one_other_is_not_crowded,
    who_claims_from_another_queue_is_not_crowded,
    who_expects_less_does_not_ask,
    a_claim_keeps_no_place_when_it_is_over,
}
