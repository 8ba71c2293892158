//! Every statement that publishes, claims or settles, by the calls that send it.

use std::sync::Arc;
use std::time::Duration;

use outbox::testing::store::{
    Claim, Expects, Extend, Lease, PgStore, Position, Release, Retry, Store, Taken, ack_publishing,
    new_token,
};
use outbox::{Outgoing, Publisher, Row, TableNames, TimerConflict};
use outbox_tests::letters::death;
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
    pub async fn all(&self, queue: &str, rows: usize) -> anyhow::Result<()> {
        self.publish(queue, rows).await?;
        let leases = self.claim(queue, rows).await?;
        let extends: Vec<_> =
            leases.iter().map(|&lease| Extend { lease, token: lease.token }).collect();
        landed(self.store.extend(&extends).await?);
        landed(self.store.held(&leases).await?);
        let delay = Duration::from_secs(1);
        let retries: Vec<_> = leases.into_iter().map(|lease| Retry { lease, delay }).collect();
        landed(self.store.retry(&retries).await?);
        let releases: Vec<_> = self.claim(queue, rows).await?.into_iter().map(release).collect();
        landed(self.store.release(&releases).await?);
        let deaths: Vec<_> = self.claim(queue, rows).await?.into_iter().map(death).collect();
        landed(self.store.bury(&deaths).await?);
        landed(self.store.ack(&self.claim(queue, rows).await?).await?);
        let acks = self.claim(queue, rows).await?.into_iter();
        let acks = acks.map(|lease| (lease, vec![Outgoing::new(queue, &1)]));
        landed(ack_publishing(&self.store, &self.publisher, acks).await?);
        let lost = claim_of(&[queue.to_owned()], rows, None);
        self.store.claim(std::slice::from_ref(&lost)).await?;
        self.store.abandon(&lost).await?;
        self.store.depths(&[queue.to_owned(), "empty".to_owned()], 10_000).await?;
        Ok(())
    }

    /// What an app may do while its table is empty, and plans for ever by that.
    pub async fn in_vain(&self, queue: &str) -> anyhow::Result<()> {
        let mut tx = self.pool.begin().await?;
        assert!(!self.publisher.cancel_timer(&mut tx, queue, "none").await?);
        tx.commit().await?;
        let lease = Lease { id: 0, token: new_token() };
        assert_eq!(self.store.ack(&[lease]).await?, [false]);
        let extend = Extend { lease, token: lease.token };
        assert_eq!(self.store.extend(&[extend]).await?, [false]);
        assert!(self.claim(queue, 3).await?.is_empty());
        Ok(())
    }

    async fn publish(&self, queue: &str, rows: usize) -> anyhow::Result<()> {
        let mut tx = self.pool.begin().await?;
        let publisher = &self.publisher;
        publisher.publish(&mut tx, queue, &1).await?;
        let batch = (0..6 * rows).map(|n| Outgoing::new(queue, &n));
        publisher.publish_batch(&mut tx, batch).await?;
        let timer = || Outgoing::new(queue, &1).delay(LEASE).timer_id("once");
        publisher.send(&mut tx, timer()).await?;
        let later = timer().delay(2 * LEASE).on_conflict(TimerConflict::Extend);
        publisher.send(&mut tx, later).await?;
        let named = |n| Outgoing::new(queue, &n).delay(LEASE).timer_id(format!("timer {n}"));
        publisher.publish_batch(&mut tx, (0..rows).map(named)).await?;
        assert!(publisher.cancel_timer(&mut tx, queue, "once").await?);
        Ok(tx.commit().await?)
    }

    /// By each of the statements: one that expects as many as it asks for, from the start; one
    /// that does not, behind that; and one for many queues, of which the others have nothing.
    async fn claim(&self, queue: &str, rows: usize) -> anyhow::Result<Vec<Lease>> {
        let queues = [queue.to_owned()];
        let share = rows / 3;
        let first = self.taken(&[claim_of(&queues, rows - 2 * share, None)]).await?.remove(0);
        let after = |taken: &Taken| taken.rows.last().map(|last| Position::of(&last.row));
        let few = Claim { expects: Expects::Few, ..claim_of(&queues, share, after(&first)) };
        let second = self.taken(&[few]).await?.remove(0);
        let mut claims = vec![claim_of(&queues, share, after(&second).or(after(&first)))];
        claims.extend((0..40).map(|n| claim_of(&[format!("empty {n}")], 10, None)));
        let third = self.taken(&claims).await?.remove(0);
        let rows = [first, second, third].into_iter().flat_map(|taken| taken.rows);
        let lease = |row: Box<Row>| Lease { id: row.id, token: row.acquired_token.unwrap() };
        Ok(rows.map(|claimed| lease(claimed.row)).collect())
    }

    async fn taken(&self, claims: &[Claim]) -> anyhow::Result<Vec<Taken>> {
        Ok(self.store.claim(claims).await?)
    }

    pub async fn close(self) {
        self.store.close().await;
        self.pool.close().await;
    }
}

fn claim_of(queues: &[String], limit: usize, after: Option<Position>) -> Claim {
    Claim {
        queues: Arc::from(queues),
        limit,
        lease_ttl: LEASE,
        token: new_token(),
        after,
        max_deliveries: None,
        expects: Expects::Plenty,
    }
}

fn release(lease: Lease) -> Release {
    Release { lease, due_in: Some(Duration::from_secs(1)), uncount: 1, claimed_at: None }
}

fn landed(landed: Vec<bool>) {
    assert!(!landed.is_empty() && landed.iter().all(|hit| *hit), "a write found no row");
}
