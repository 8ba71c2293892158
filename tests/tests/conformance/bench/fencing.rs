//! What every settle has in common: it writes under the token of its lease, and
//! under no other.

use std::time::Duration;

use outbox::testing::store::{Extend, Landed, Lease, Release, Store, new_token};

use super::{Bench, Steps, TTL, death, refenced, retry};

/// Every write after a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    Ack,
    Retry,
    Bury,
    Release,
    Extend,
}

impl Settle {
    pub async fn run<B: Bench>(self, b: &B, leases: &[Lease]) -> Landed {
        let leases = leases.iter().copied();
        let store = b.store();
        let landed = match self {
            Self::Ack => store.ack(&leases.collect::<Vec<_>>()).await,
            Self::Retry => {
                let retries = leases.map(|lease| retry(lease, Duration::from_secs(3600)));
                store.retry(&retries.collect::<Vec<_>>()).await
            }
            Self::Bury => store.bury(&leases.map(death).collect::<Vec<_>>()).await,
            Self::Release => {
                let release =
                    |lease| Release { lease, due_in: Some(TTL), uncount: 1, claimed_at: None };
                store.release(&leases.map(release).collect::<Vec<_>>()).await
            }
            Self::Extend => {
                let token = new_token();
                let extend = |lease| Extend { lease, token };
                store.extend(&leases.map(extend).collect::<Vec<_>>()).await
            }
        };
        landed.unwrap()
    }

    /// Whether a landed settle shows in the tables.
    async fn shows<B: Bench>(self, b: &B, lease: Lease) -> bool {
        match b.find(lease.id).await {
            None => matches!(self, Self::Ack | Self::Bury),
            Some(row) => row.token != Some(lease.token),
        }
    }
}

// The bodies of the cases; the theme `fencing` names one for each settle.

pub async fn right_token<B: Bench>(b: &B, settle: Settle) {
    b.put("q").await;
    let lease = b.take("q").await;
    assert_eq!(settle.run(b, &[lease]).await, [true]);
    assert!(settle.shows(b, lease).await);
}

pub async fn wrong_token<B: Bench>(b: &B, settle: Settle) {
    b.put("q").await;
    let lease = b.take("q").await;
    let before = b.rows().await;
    assert_eq!(settle.run(b, &[refenced(lease)]).await, [false]);
    assert_eq!(b.rows().await, before);
    assert!(b.letters().await.is_empty());
}

pub async fn unleased<B: Bench>(b: &B, settle: Settle) {
    b.put("q").await;
    let lease = b.take("q").await;
    let back = Release { lease, due_in: None, uncount: 0, claimed_at: None };
    assert_eq!(b.store().release(&[back]).await.unwrap(), [true]);
    let before = b.rows().await;
    assert_eq!(settle.run(b, &[lease]).await, [false]);
    assert_eq!(b.rows().await, before);
    assert!(b.letters().await.is_empty());
}

pub async fn reclaimed<B: Bench>(b: &B, settle: Settle) {
    b.put("q").await;
    let old = b.take("q").await;
    b.age(TTL).await;
    let new = b.take("q").await;
    let before = b.rows().await;
    assert_eq!(settle.run(b, &[old]).await, [false]);
    assert_eq!(b.rows().await, before);
    assert!(b.letters().await.is_empty());
    assert_eq!(settle.run(b, &[new]).await, [true]);
}

pub async fn gone<B: Bench>(b: &B, settle: Settle) {
    b.put("q").await;
    let lease = b.take("q").await;
    assert_eq!(b.store().ack(&[lease]).await.unwrap(), [true]);
    assert_eq!(settle.run(b, &[lease]).await, [false]);
    b.assert_empty().await;
    assert!(b.letters().await.is_empty());
}

/// An expired lease that nobody took over is still a lease: the token fences,
/// not the clock.
pub async fn expired_alone<B: Bench>(b: &B, settle: Settle) {
    b.put("q").await;
    let lease = b.take("q").await;
    b.age(TTL * 2).await;
    assert_eq!(settle.run(b, &[lease]).await, [true]);
    assert!(settle.shows(b, lease).await);
}

pub async fn some_lost<B: Bench>(b: &B, settle: Settle) {
    b.put_many("q", 6).await;
    let held = b.take_many("q", 6).await;
    // Rows 1 and 4 are lost; the answers come in the order of the question.
    let order = [5, 1, 3, 0, 4, 2];
    let asked: Vec<Lease> =
        order.iter().map(|&n| if n == 1 || n == 4 { refenced(held[n]) } else { held[n] }).collect();
    let before = b.rows().await;
    let landed = settle.run(b, &asked).await;
    assert_eq!(landed, [true, false, true, true, false, true]);
    for n in [0, 2, 3, 5] {
        assert!(settle.shows(b, held[n]).await, "row {n}");
    }
    for n in [1, 4] {
        assert_eq!(b.row(held[n].id).await, before[n], "row {n}");
    }
    let letters = if settle == Settle::Bury { 4 } else { 0 };
    assert_eq!(b.letters().await.len(), letters);
}

/// Many rows of one claim, of which the third is gone and the fourth another claim's.
pub async fn lost_among<B: Bench>(b: &B, settle: Settle) {
    b.put_many("q", 50).await;
    let held = b.take_many("q", 50).await;
    assert_eq!(b.store().ack(&held[2..3]).await.unwrap(), [true]);
    let back = Release { lease: held[3], due_in: None, uncount: 0, claimed_at: None };
    assert_eq!(b.store().release(&[back]).await.unwrap(), [true]);
    b.take("q").await;
    let others = b.row(held[3].id).await;
    let landed = settle.run(b, &held).await;
    for (n, &lease) in held.iter().enumerate() {
        let lost = n == 2 || n == 3;
        assert_eq!(landed[n], !lost, "row {n}");
        assert!(lost || settle.shows(b, lease).await, "row {n}");
    }
    assert_eq!(b.row(held[3].id).await, others);
    // Each once.
    for row in b.rows().await.iter().filter(|row| row.id != others.id) {
        let attempts = i64::from(settle == Settle::Retry);
        let deliveries = i64::from(settle != Settle::Release);
        assert_eq!((row.attempts, row.deliveries), (attempts, deliveries));
    }
    let letters = if settle == Settle::Bury { 48 } else { 0 };
    assert_eq!(b.letters().await.len(), letters);
}

pub async fn two_tokens<B: Bench>(b: &B, settle: Settle) {
    b.put("q").await;
    let lease = b.take("q").await;
    let (before, after) = (refenced(lease), refenced(lease));
    assert_eq!(settle.run(b, &[before, lease, after]).await, [false, true, false]);
    assert!(settle.shows(b, lease).await);
    assert!(b.letters().await.len() <= 1);
    // Each of three has another one's token beside it, before or behind its own.
    b.put_many("r", 3).await;
    let held = b.take_many("r", 3).await;
    let lost: Vec<Lease> = held.iter().map(|&lease| refenced(lease)).collect();
    let asked = [held[2], lost[0], held[1], lost[2], held[0], lost[1]];
    let landed = settle.run(b, &asked).await;
    assert_eq!(landed, [true, false, true, false, true, false]);
    for lease in held {
        assert!(settle.shows(b, lease).await);
    }
}

/// Of one claim, and it leaves those in their midst and behind them alone that it does not name.
pub async fn large_batch<B: Bench>(b: &B, settle: Settle) {
    let message = || outbox::Outgoing::raw("q", "x");
    b.send_batch((0..530).map(|_| message()).collect()).await;
    let mut leases = b.take_many("q", 530).await;
    let mut others: Vec<_> = leases.drain(520..).collect();
    others.extend(leases.drain(300..320));
    let rows = || async {
        let mut rows = b.rows().await;
        rows.retain(|row| others.iter().any(|other| other.id == row.id));
        rows
    };
    let before = rows().await;
    leases.reverse();
    assert_eq!(settle.run(b, &leases).await, vec![true; 500]);
    assert_eq!((rows().await, before.len()), (before, 30));
}

pub async fn empty<B: Bench>(b: &B, settle: Settle) {
    b.put("q").await;
    b.take("q").await;
    let before = b.rows().await;
    assert!(settle.run(b, &[]).await.is_empty());
    assert_eq!(b.rows().await, before);
}
