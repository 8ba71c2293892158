//! Every statement that publishes, claims or settles, by the calls that send it.

use std::sync::Arc;
use std::time::Duration;

use outbox::testing::store::{
    Claim, Death, Extend, Lease, PgStore, Position, Release, Retry, Store, Taken, ack_publishing,
    new_token,
};
use outbox::{FailureReason, Outgoing, Publisher, TableNames, TimerConflict};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};

const LEASE: Duration = Duration::from_secs(600);

pub struct Work {
    pool: PgPool,
    store: PgStore,
    publisher: Publisher,
}

impl Work {
    /// On connections of its own: plans are kept with them.
    pub fn on(options: PgConnectOptions, names: &TableNames) -> Self {
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
        let store = PgStore::new(&pool, names.clone());
        Self { pool, store, publisher: Publisher::new(names.clone()) }
    }

    /// Each statement at least once, on batches of `rows`.
    pub async fn all(&self, queue: &str, rows: usize) {
        self.publish(queue, rows).await;
        let leases = self.claim(queue, rows).await;
        let extends: Vec<_> =
            leases.iter().map(|&lease| Extend { lease, token: lease.token }).collect();
        landed(self.store.extend(&extends).await.unwrap());
        let delay = Duration::from_secs(1);
        let retries: Vec<_> = leases.into_iter().map(|lease| Retry { lease, delay }).collect();
        landed(self.store.retry(&retries).await.unwrap());
        let releases: Vec<_> = self.claim(queue, rows).await.into_iter().map(release).collect();
        landed(self.store.release(&releases).await.unwrap());
        let deaths: Vec<_> = self.claim(queue, rows).await.into_iter().map(death).collect();
        landed(self.store.bury(&deaths).await.unwrap());
        landed(self.store.ack(&self.claim(queue, rows).await).await.unwrap());
        let acks = self.claim(queue, rows).await.into_iter();
        let acks = acks.map(|lease| (lease, vec![Outgoing::new(queue, &1)]));
        landed(ack_publishing(&self.store, &self.publisher, acks).await.unwrap());
        let lost = claim_of(&[queue.to_owned()], rows, None);
        self.store.claim(std::slice::from_ref(&lost)).await.unwrap();
        self.store.abandon(&lost).await.unwrap();
    }

    async fn publish(&self, queue: &str, rows: usize) {
        let mut tx = self.pool.begin().await.unwrap();
        let publisher = &self.publisher;
        publisher.publish(&mut tx, queue, &1).await.unwrap();
        let batch = (0..6 * rows).map(|n| Outgoing::new(queue, &n));
        publisher.publish_batch(&mut tx, batch).await.unwrap();
        let timer = || Outgoing::new(queue, &1).delay(LEASE).timer_id("once");
        publisher.send(&mut tx, timer()).await.unwrap();
        let later = timer().delay(2 * LEASE).on_conflict(TimerConflict::Extend);
        publisher.send(&mut tx, later).await.unwrap();
        let named = |n| Outgoing::new(queue, &n).delay(LEASE).timer_id(format!("timer {n}"));
        publisher.publish_batch(&mut tx, (0..rows).map(named)).await.unwrap();
        assert!(publisher.cancel_timer(&mut tx, queue, "once").await.unwrap());
        publisher.pending(&mut *tx, queue, 10).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// From the start, then behind that; for many queues as well, of which the
    /// others have nothing.
    async fn claim(&self, queue: &str, rows: usize) -> Vec<Lease> {
        let queues = [queue.to_owned()];
        let first = self.taken(&[claim_of(&queues, rows.div_ceil(2), None)]).await.remove(0);
        let after = first.rows.last().map(|last| Position::of(&last.row));
        let mut claims = vec![claim_of(&queues, rows / 2, after)];
        claims.extend((0..40).map(|n| claim_of(&[format!("empty {n}")], 10, None)));
        let second = self.taken(&claims).await.remove(0);
        let rows = first.rows.iter().chain(&second.rows).map(|claimed| &claimed.row);
        rows.map(|row| Lease { id: row.id, token: row.acquired_token.unwrap() }).collect()
    }

    async fn taken(&self, claims: &[Claim]) -> Vec<Taken> {
        self.store.claim(claims).await.unwrap()
    }

    pub async fn close(self) {
        self.store.close().await;
        self.pool.close().await;
    }
}

fn claim_of(queues: &[String], limit: usize, after: Option<Position>) -> Claim {
    let queues = Arc::from(queues);
    Claim { queues, limit, lease_ttl: LEASE, token: new_token(), after, look_ahead: true }
}

fn release(lease: Lease) -> Release {
    Release { lease, due_in: Some(Duration::from_secs(1)), uncount: true, claimed_at: None }
}

fn death(lease: Lease) -> Death {
    let reason = FailureReason::Rejected;
    Death { lease, reason, error_kind: None, last_exception: None, note: None }
}

fn landed(landed: Vec<bool>) {
    assert!(!landed.is_empty() && landed.iter().all(|hit| *hit), "a write found no row");
}
