//! Several claims in one statement, claims that begin behind a place, and what a
//! claim says of the time after it.

use std::time::Duration;

use outbox::Outgoing;
use outbox::testing::store::{Claim, Position, Store, Taken};

use crate::bench::{Bench, SqlBench, Sqlite, Steps, TTL, lease, retry};

const HOUR: Duration = Duration::from_secs(3600);

async fn both<B: Bench>(b: &B, claims: &[Claim]) -> Vec<Taken> {
    let taken = b.store().claim(claims).await.unwrap();
    assert_eq!(taken.len(), claims.len());
    taken
}

fn ids(taken: &Taken) -> Vec<i64> {
    taken.rows.iter().map(|claimed| claimed.row.id).collect()
}

async fn each_claim_gets_its_own_rows<B: Bench>(b: B) {
    let x = b.put_many("x", 3).await;
    let y = b.put_many("y", 3).await;
    let z = b.put_many("z", 1).await;
    let claims = [b.claim_of(&["y"], 2), b.claim_of(&["empty"], 5), b.claim_of(&["x", "z"], 10)];
    let taken = both(&b, &claims).await;
    assert_eq!(ids(&taken[0]), y[..2]);
    assert!(taken[1].rows.is_empty());
    assert_eq!(ids(&taken[2]), [x, z].concat());
    for (claim, taken) in claims.iter().zip(&taken) {
        assert!(taken.rows.iter().all(|one| one.row.acquired_token == Some(claim.token)));
    }
    assert_eq!(b.row(y[2]).await.token, None);
}

async fn each_claim_has_its_own_lease<B: Bench>(b: B) {
    b.put("x").await;
    b.put("y").await;
    both(&b, &[b.claim_of(&["x"], 1), b.claim_of(&["y"], 1)]).await;
    b.age(TTL / 2).await;
    let short = |queue| Claim { lease_ttl: TTL / 4, ..b.claim_of(&[queue], 1) };
    let taken = both(&b, &[b.claim_of(&["x"], 1), short("y")]).await;
    assert!(taken[0].rows.is_empty(), "the lease holds");
    assert_eq!(taken[1].rows.len(), 1, "by that measure it is over");
}

async fn two_claims_of_a_queue_share_its_rows<B: Bench>(b: B) {
    let all = b.put_many("q", 6).await;
    let taken = both(&b, &[b.claim_of(&["q"], 4), b.claim_of(&["q"], 4)]).await;
    let mut got = [ids(&taken[0]), ids(&taken[1])].concat();
    got.sort_unstable();
    got.dedup();
    assert_eq!(got.len(), ids(&taken[0]).len() + ids(&taken[1]).len(), "no row twice");
    let rest = b.claim_ids(&["q"], 10).await;
    assert_eq!(got.len() + rest.len(), all.len());
    assert!(rest.iter().all(|id| !got.contains(id)));
}

async fn no_claims_get_no_answers<B: Bench>(b: B) {
    b.put("q").await;
    assert!(b.store().claim(&[]).await.unwrap().is_empty());
    assert_eq!(b.row(b.rows().await[0].id).await.token, None);
}

async fn a_claim_begins_behind_the_place_it_is_given<B: Bench>(b: B) {
    let all = b.put_many("q", 4).await;
    let first = b.claim(&["q"], 2).await;
    let place = Position::of(&first[1].row);
    // Rows before the place are free again, and left alone.
    let leases: Vec<_> = first.iter().map(lease).collect();
    let back = |lease| outbox::testing::store::Release {
        lease,
        due_in: None,
        uncount: 1,
        claimed_at: None,
    };
    b.store().release(&leases.into_iter().map(back).collect::<Vec<_>>()).await.unwrap();
    let behind = Claim { after: Some(place), ..b.claim_of(&["q"], 10) };
    assert_eq!(ids(&b.taken(&behind).await), all[2..]);
    assert_eq!(b.claim_ids(&["q"], 10).await, all[..2]);
}

/// Rows published by one transaction may share their due time.
async fn rows_of_one_time_are_told_apart_by_their_ids<B: Bench>(b: B) {
    let at = std::time::SystemTime::UNIX_EPOCH + HOUR;
    let batch = (0..5).map(|n| Outgoing::new("q", &n).at(at)).collect();
    let all: Vec<_> = b.send_batch(batch).await.iter().map(|one| one.id().unwrap()).collect();
    let first = b.claim(&["q"], 2).await;
    let place = Position::of(&first[1].row);
    let behind = Claim { after: Some(place), ..b.claim_of(&["q"], 2) };
    assert_eq!(ids(&b.taken(&behind).await), all[2..4]);
}

async fn a_claim_that_got_all_it_asked_for_does_not_look_ahead<B: Bench>(b: B) {
    b.put_many("q", 2).await;
    b.send(Outgoing::new("q", &1).delay(HOUR)).await;
    let ahead = |limit| b.claim_of(&["q"], limit);
    let taken = b.taken(&ahead(2)).await;
    assert_eq!((taken.rows.len(), taken.next), (2, None));
    assert!(b.taken(&ahead(2)).await.next.is_some());
}

async fn a_claim_looks_ahead_in_its_own_queues<B: Bench>(b: B) {
    b.send(Outgoing::new("x", &1).delay(HOUR)).await;
    b.send(Outgoing::new("y", &1).delay(3 * HOUR)).await;
    let ahead = |queue| b.claim_of(&[queue], 1);
    let taken = both(&b, &[ahead("x"), ahead("y")]).await;
    assert!(taken[0].next.unwrap() <= HOUR);
    assert!(taken[1].next.unwrap() > 2 * HOUR);
}

/// Otherwise every retry would make for a second claim.
async fn rows_that_a_claim_takes_are_not_what_comes_next<B: Bench>(b: B) {
    b.put("q").await;
    let first = b.take("q").await;
    b.store().retry(&[retry(first, HOUR)]).await.unwrap();
    b.age(HOUR).await;
    let ahead = b.claim_of(&["q"], 10);
    let taken = b.taken(&ahead).await;
    assert_eq!(taken.rows.len(), 1);
    assert!(taken.next.is_none_or(|next| next > TTL / 2), "{:?}", taken.next);
}

/// There each claim is a transaction of its own.
async fn a_claim_that_fails_behind_others_leaves_them_theirs(b: Sqlite) {
    let all = [b.put("good").await, b.put("bad").await, b.put("behind").await];
    b.execute(
        "CREATE TRIGGER refuse BEFORE UPDATE ON outbox WHEN NEW.queue = 'bad'
         BEGIN SELECT RAISE(ABORT, 'refused'); END",
    )
    .await;
    let claims = || ["good", "bad", "behind"].map(|queue| b.claim_of(&[queue], 1));
    let taken = both(&b, &claims()).await;
    assert_eq!(ids(&taken[0]), all[..1]);
    for later in &taken[1..] {
        let soon = Duration::from_millis(1)..Duration::from_secs(1);
        assert!(later.next.is_some_and(|next| soon.contains(&next)), "{later:?}");
        assert!(later.rows.is_empty(), "{later:?}");
    }
    let failed = b.store().claim(&claims()).await;
    assert!(failed.unwrap_err().to_string().contains("refused"), "nothing was taken before it");
    b.execute("DROP TRIGGER refuse").await;
    assert_eq!(both(&b, &claims()).await.iter().flat_map(ids).collect::<Vec<_>>(), all[1..]);
}

mod one_by_one {
    use super::*;

    cases! {
        sqlite only, "PostgreSQL makes them in one statement, memory cannot fail":
        a_claim_that_fails_behind_others_leaves_them_theirs,
    }
}

cases! {
    each_claim_gets_its_own_rows,
    each_claim_has_its_own_lease,
    two_claims_of_a_queue_share_its_rows,
    no_claims_get_no_answers,
    a_claim_begins_behind_the_place_it_is_given,
    rows_of_one_time_are_told_apart_by_their_ids,
    a_claim_that_got_all_it_asked_for_does_not_look_ahead,
    a_claim_looks_ahead_in_its_own_queues,
    rows_that_a_claim_takes_are_not_what_comes_next,
}
