//! What most cases do on the way to their point.

use std::sync::Arc;
use std::time::Duration;

use outbox::testing::store::{
    Claim, Claimed, Death, Expects, Lease, Retry, Store, Taken, new_token,
};
use outbox::{FailureReason, Outgoing, Published};
use serde_json::json;

use super::{Bench, RawRow};

/// The lease of every claim that does not name another. So long that the time a
/// case takes is nothing to it.
pub const TTL: Duration = Duration::from_secs(600);
/// What the slowest machine needs for a case, and far less than any delay that
/// a case tells apart.
const SLACK: Duration = Duration::from_secs(60);

pub trait Steps: Bench {
    /// Publishes one message and commits.
    async fn send(&self, message: Outgoing) -> Published {
        let mut tx = self.begin().await;
        let published = self.publisher().send(&mut tx, message).await.unwrap();
        self.commit(tx).await;
        published
    }

    /// Publishes several messages as one batch and commits.
    async fn send_batch(&self, messages: Vec<Outgoing>) -> Vec<Published> {
        let mut tx = self.begin().await;
        let published = self.publisher().publish_batch(&mut tx, messages).await.unwrap();
        self.commit(tx).await;
        published
    }

    /// A new message that is due, committed; its id.
    async fn put(&self, queue: &str) -> i64 {
        self.send(Outgoing::new(queue, &json!({ "n": 1 }))).await.id().unwrap()
    }

    /// Several of them, in order.
    async fn put_many(&self, queue: &str, count: usize) -> Vec<i64> {
        let mut ids = Vec::with_capacity(count);
        for _ in 0..count {
            ids.push(self.put(queue).await);
        }
        ids
    }

    /// Claims under a fresh token.
    async fn claim(&self, queues: &[&str], limit: usize) -> Vec<Claimed> {
        self.claim_by(&self.claim_of(queues, limit)).await
    }

    async fn claim_by(&self, claim: &Claim) -> Vec<Claimed> {
        self.taken(claim).await.rows
    }

    async fn taken(&self, claim: &Claim) -> Taken {
        let mut taken = self.store().claim(std::slice::from_ref(claim)).await.unwrap();
        assert_eq!(taken.len(), 1, "one answer a claim");
        taken.remove(0)
    }

    /// A claim to be made, with a fresh token.
    fn claim_of(&self, queues: &[&str], limit: usize) -> Claim {
        let queues: Arc<[String]> = queues.iter().map(|&queue| queue.to_owned()).collect();
        let token = new_token();
        Claim {
            queues,
            limit,
            lease_ttl: TTL,
            token,
            after: None,
            max_deliveries: None,
            expects: Expects::Few,
        }
    }

    /// Claims exactly one row.
    async fn take(&self, queue: &str) -> Lease {
        let claimed = self.claim(&[queue], 1).await;
        assert_eq!(claimed.len(), 1, "one row of {queue} is due");
        lease(&claimed[0])
    }

    /// Claims exactly `count` rows with one claim, in order of id.
    async fn take_many(&self, queue: &str, count: usize) -> Vec<Lease> {
        let claimed = self.claim(&[queue], count).await;
        assert_eq!(claimed.len(), count);
        let mut leases: Vec<_> = claimed.iter().map(lease).collect();
        leases.sort_by_key(|lease| lease.id);
        leases
    }

    /// Ids that a claim gets, in its order. The rows stay leased.
    async fn claim_ids(&self, queues: &[&str], limit: usize) -> Vec<i64> {
        self.claim(queues, limit).await.iter().map(|claimed| claimed.row.id).collect()
    }

    async fn find(&self, id: i64) -> Option<RawRow> {
        self.rows().await.into_iter().find(|row| row.id == id)
    }

    /// The row, which must be there.
    async fn row(&self, id: i64) -> RawRow {
        self.find(id).await.unwrap_or_else(|| panic!("row {id} is gone"))
    }

    /// Microseconds from now, by the store's clock, to the due time of the row.
    async fn due_in(&self, id: i64) -> i64 {
        self.row(id).await.due - self.now().await
    }

    async fn assert_empty(&self) {
        let rows = self.rows().await;
        assert!(rows.is_empty(), "{rows:?}");
    }
}

impl<B: Bench> Steps for B {}

/// The right to settle a claimed row.
pub fn lease(claimed: &Claimed) -> Lease {
    Lease { id: claimed.row.id, token: claimed.row.acquired_token.unwrap() }
}

/// The same row under a token that nobody was given.
pub fn refenced(lease: Lease) -> Lease {
    Lease { token: new_token(), ..lease }
}

/// A plain terminal failure.
pub fn death(lease: Lease) -> Death<'static> {
    Death {
        lease,
        reason: FailureReason::RetryTerminal,
        error_kind: Some("Broken".into()),
        last_exception: Some("it broke".into()),
        note: None,
        fingerprint: None,
    }
}

pub fn retry(lease: Lease, delay: Duration) -> Retry {
    Retry { lease, delay }
}

/// Asserts that a distance in microseconds is the expected one, but for the time
/// the case itself took.
#[track_caller]
pub fn about(actual: i64, expected: Duration) {
    let expected = i64::try_from(expected.as_micros()).unwrap();
    let slack = i64::try_from(SLACK.as_micros()).unwrap();
    assert!((actual - expected).abs() <= slack, "{actual} µs are not about {expected} µs");
}
