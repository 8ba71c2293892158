//! Claims and settles that meet.

use std::collections::HashSet;

use outbox::testing::store::{Claim, Extend, Lease, Store};
use outbox::{Outgoing, StoreError};
use tokio::task::JoinSet;

use crate::bench::{Bench, Settle, Steps, TTL, lease, retry};

/// Runs all claims at once and gives the leases of each.
async fn race<B: Bench>(b: &B, claims: Vec<Claim>) -> Vec<Vec<Lease>> {
    let mut running = JoinSet::new();
    for claim in claims {
        let store = b.store().clone();
        running.spawn(async move { store.claim(&[claim]).await.unwrap().remove(0).rows });
    }
    let won = running.join_all().await;
    won.iter().map(|claimed| claimed.iter().map(lease).collect()).collect()
}

fn assert_no_row_twice(won: &[Vec<Lease>], rows: usize) {
    let ids: Vec<i64> = won.iter().flatten().map(|lease| lease.id).collect();
    assert_eq!(ids.len(), rows);
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), rows);
}

async fn concurrent_claims_share_no_row<B: Bench>(b: B) {
    b.send_batch((0..200).map(|n| Outgoing::new("q", &n)).collect()).await;
    let mut won = Vec::new();
    for _ in 0..10 {
        let claims = (0..8).map(|_| b.claim_of(&["q"], 5)).collect();
        won.extend(race(&b, claims).await);
    }
    // Who meets a locked row passes it by, so a round may take fewer.
    while let claimed = b.claim(&["q"], 200).await
        && !claimed.is_empty()
    {
        won.push(claimed.iter().map(lease).collect());
    }
    assert_no_row_twice(&won, 200);
    for row in b.rows().await {
        assert_eq!(row.deliveries, 1);
    }
}

async fn one_row_is_won_by_one_claim<B: Bench>(b: B) {
    for _ in 0..10 {
        b.put("q").await;
        let claims = (0..8).map(|_| b.claim_of(&["q"], 1)).collect();
        assert_no_row_twice(&race(&b, claims).await, 1);
    }
}

async fn an_expired_row_is_won_by_one_claim<B: Bench>(b: B) {
    b.put("q").await;
    b.take("q").await;
    for _ in 0..10 {
        b.age(TTL).await;
        let claims = (0..8).map(|_| b.claim_of(&["q"], 1)).collect();
        assert_no_row_twice(&race(&b, claims).await, 1);
    }
}

async fn claims_of_overlapping_queues_share_no_row<B: Bench>(b: B) {
    let batch = (0..60).map(|n| Outgoing::new(["x", "y", "z"][n % 3], &n));
    b.send_batch(batch.collect()).await;
    let sets: [&[&str]; 4] = [&["x", "y"], &["y", "x"], &["z", "y"], &["x", "z"]];
    let mut won = race(&b, sets.iter().map(|set| b.claim_of(set, 10)).collect()).await;
    let rest = b.claim(&["x", "y", "z"], 100).await;
    won.push(rest.iter().map(lease).collect());
    assert_no_row_twice(&won, 60);
}

/// As two processes do: each with connections of its own, nothing in common but
/// the tables.
async fn two_processes_share_no_row_and_meet_no_error<B: Bench>(b: B) {
    let other = b.without_dlq();
    b.send_batch((0..100).map(|n| Outgoing::new("q", &n)).collect()).await;
    let mut running = JoinSet::new();
    for b in [b.clone(), other.clone(), b.clone(), other.clone()] {
        running.spawn(async move {
            let mut won = Vec::new();
            for _ in 0..25 {
                let claim = b.claim_of(&["q"], 1);
                let claimed = b.claim_by(&claim).await;
                let leases: Vec<Lease> = claimed.iter().map(lease).collect();
                let landed = b.store().ack(&leases).await.unwrap();
                assert!(landed.iter().all(|&landed| landed));
                won.extend(leases);
            }
            won
        });
    }
    let won = running.join_all().await;
    let left = b.rows().await.len();
    assert_no_row_twice(&won, 100 - left);
    other.store().close().await;
}

/// What waits for a lock for too long gives way, and is to be asked again.
async fn asked<T, F: Future<Output = Result<T, StoreError>>>(ask: impl Fn() -> F) -> T {
    for _ in 0..5 {
        match ask().await {
            Err(late) if late.transient => {}
            answer => return answer.unwrap(),
        }
    }
    ask().await.unwrap()
}

async fn one_lease_is_settled_once<B: Bench>(b: B) {
    for _ in 0..5 {
        b.put("q").await;
        let lease = [b.take("q").await];
        let mut running = JoinSet::new();
        for _ in 0..8 {
            let store = b.store().clone();
            running.spawn(async move { asked(|| store.ack(&lease)).await[0] });
        }
        let landed = running.join_all().await;
        assert_eq!(landed.iter().filter(|&&landed| landed).count(), 1);
    }
}

/// The old holder's late ack meets the claim of the next one: whoever comes
/// second finds nothing.
async fn an_ack_and_a_reclaim_do_not_both_land<B: Bench>(b: B) {
    for _ in 0..10 {
        b.put("q").await;
        let old = [b.take("q").await];
        b.age(TTL).await;
        let (store, claim) = (b.store().clone(), b.claim_of(&["q"], 1));
        let acked = tokio::spawn(async move { asked(|| store.ack(&old)).await[0] });
        let claimed = b.claim_by(&claim).await;
        // The claim may have passed the row by while the ack had it locked.
        assert!(!acked.await.unwrap() || claimed.is_empty());
        let leases: Vec<Lease> = claimed.iter().map(lease).collect();
        assert_eq!(Settle::Ack.run(&b, &leases).await, vec![true; leases.len()]);
        b.assert_empty().await;
    }
}

async fn batches_in_opposite_orders_do_not_deadlock<B: Bench>(b: B) {
    b.send_batch((0..200).map(|n| Outgoing::new("q", &n)).collect()).await;
    let forward = b.take_many("q", 200).await;
    let mut backward = forward.clone();
    backward.reverse();
    let mut running = JoinSet::new();
    for round in 0..8 {
        let store = b.store().clone();
        let leases = if round % 2 == 0 { forward.clone() } else { backward.clone() };
        running.spawn(async move {
            let same = |&lease: &Lease| Extend { lease, token: lease.token };
            let extends: Vec<_> = leases.iter().map(same).collect();
            let landed = store.extend(&extends).await.unwrap();
            (landed, store.held(&leases).await.unwrap())
        });
    }
    for (landed, held) in running.join_all().await {
        // Of those that another batch had locked none was waited for, and none is lost.
        assert!(landed.iter().zip(held).all(|(landed, held)| *landed || held));
    }
}

/// Rows of two claims, one beside the other; what is written differs from row to row.
async fn settles_and_extensions_of_the_same_rows_do_not_deadlock<B: Bench>(b: B) {
    let beside = |n: usize| Outgoing::new(["a", "b"][n % 2], &n);
    b.send_batch((0..200).map(beside).collect()).await;
    let mut leases = b.take_many("a", 100).await;
    leases.extend(b.take_many("b", 100).await);
    let mut running = JoinSet::new();
    for round in 0..12 {
        let store = b.store().clone();
        // Another order in each round.
        let leases: Vec<_> = (0..200).map(|n| leases[(n * 73 + round * 41) % 200]).collect();
        running.spawn(async move {
            let held = leases.iter();
            match round {
                3 => store.ack(&leases[..100]).await.map(|landed| (true, landed)),
                6 => {
                    let retries = held.zip(1..).map(|(&lease, n)| retry(lease, TTL * n));
                    store.retry(&retries.collect::<Vec<_>>()).await.map(|landed| (true, landed))
                }
                _ => {
                    let same = held.map(|&lease| Extend { lease, token: lease.token });
                    store.extend(&same.collect::<Vec<_>>()).await.map(|landed| (false, landed))
                }
            }
        });
    }
    let ended = running.join_all().await.into_iter().map(|ended| ended.unwrap());
    let settled = ended.filter(|(settles, _)| *settles).flat_map(|(_, landed)| landed);
    assert_eq!(settled.filter(|&landed| landed).count(), 200, "each row is settled once");
}

cases! {
    two_processes_share_no_row_and_meet_no_error,
    concurrent_claims_share_no_row,
    one_row_is_won_by_one_claim,
    an_expired_row_is_won_by_one_claim,
    claims_of_overlapping_queues_share_no_row,
    one_lease_is_settled_once,
    an_ack_and_a_reclaim_do_not_both_land,
    batches_in_opposite_orders_do_not_deadlock,
    settles_and_extensions_of_the_same_rows_do_not_deadlock,
}
