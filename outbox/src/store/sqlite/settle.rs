//! The settlements: each batch is one BEGIN IMMEDIATE transaction.

use std::collections::BTreeMap;

use serde::Serialize;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Sqlite, Transaction};

use super::SqliteStore;
use super::batch::Batch;
use super::publish::insert_returned;
use crate::error::StoreError;
use crate::message::row::{delay_micros, to_micros};
use crate::publish::Prepared;
use crate::store::{Death, Handled, Inserted, Landed, Lease, Release, Retry};

pub(super) type Statement = Query<'static, Sqlite, SqliteArguments>;

impl SqliteStore {
    pub(super) async fn ack_rows(&self, leases: &[Lease]) -> Result<Landed, StoreError> {
        let rows: Vec<_> = leases.iter().map(|lease| (*lease, ())).collect();
        self.write("ack", &self.0.batches.ack, &rows).await
    }

    pub(super) async fn ack_and_publish(
        &self,
        acks: &[Handled<'_>],
    ) -> Result<(Landed, Inserted), StoreError> {
        const ACTION: &str = "ack and publish";
        let rows: Vec<_> = acks.iter().map(|handled| (handled.lease, ())).collect();
        let (mut tx, landed) = self.written(ACTION, &self.0.batches.ack, &rows).await?;
        let held = acks.iter().zip(&landed).filter(|&(_, &hit)| hit);
        let messages: Vec<&Prepared> = held.flat_map(|(handled, _)| handled.messages).collect();
        let published = insert_returned(&mut tx, &self.0.publish, &messages).await?;
        tx.commit().await.map_err(|error| StoreError::new(ACTION, error, true))?;
        let mut inserted = BTreeMap::<&str, usize>::new();
        for (message, published) in messages.into_iter().zip(published) {
            *inserted.entry(&message.queue).or_default() += usize::from(published.id().is_some());
        }
        let inserted = inserted.into_iter().map(|(queue, rows)| (queue.to_owned(), rows));
        Ok((landed, inserted.collect()))
    }

    pub(super) async fn retry_rows(&self, retries: &[Retry]) -> Result<Landed, StoreError> {
        let row = |retry: &Retry| (retry.lease, delay_micros(retry.delay));
        let rows: Vec<_> = retries.iter().map(row).collect();
        self.write("retry", &self.0.batches.retry, &rows).await
    }

    pub(super) async fn bury_rows(&self, deaths: &[Death<'_>]) -> Result<Landed, StoreError> {
        if self.0.names.dlq().is_none() {
            let leases: Vec<_> = deaths.iter().map(|death| death.lease).collect();
            return self.ack_rows(&leases).await;
        }
        let rows: Vec<_> = deaths.iter().map(|death| (death.lease, death.texts())).collect();
        self.write("dead-letter", &self.0.batches.bury, &rows).await
    }

    pub(super) async fn release_rows(&self, releases: &[Release]) -> Result<Landed, StoreError> {
        let row = |release: &Release| {
            let due_in = release.due_in.map(delay_micros);
            let not_before = release.not_before().map_or(0, to_micros);
            let uncount = i64::try_from(release.uncount).unwrap_or(i64::MAX);
            (release.lease, (due_in, uncount, not_before))
        };
        let rows: Vec<_> = releases.iter().map(row).collect();
        self.write("release", &self.0.batches.release, &rows).await
    }

    /// Runs a batch in a transaction of its own.
    pub(super) async fn write<T: Serialize + PartialEq>(
        &self,
        action: &'static str,
        batch: &Batch,
        rows: &[(Lease, T)],
    ) -> Result<Landed, StoreError> {
        let (tx, landed) = self.written(action, batch, rows).await?;
        // A failed COMMIT rolls back here, but says "busy" when it may be tried
        // again; either way the caller may repeat the batch.
        tx.commit().await.map_err(|error| StoreError::new(action, error, true))?;
        Ok(landed)
    }

    /// Runs a batch in a transaction that is to be committed.
    async fn written<T: Serialize + PartialEq>(
        &self,
        action: &'static str,
        batch: &Batch,
        rows: &[(Lease, T)],
    ) -> Result<(Transaction<'static, Sqlite>, Landed), StoreError> {
        let mut ranges = true;
        loop {
            let mut tx = self.begin(action).await?;
            let runs = self.0.batches.runs(action, &mut tx, rows, ranges).await?;
            let lost = batch.run(action, &mut tx, &runs).await?;
            if let Some(landed) = runs.landed(&lost) {
                return Ok((tx, landed));
            }
            // Some lease of a range is lost: which, each row by itself tells.
            tx.rollback().await.map_err(StoreError::of(action))?;
            ranges = false;
        }
    }
}
