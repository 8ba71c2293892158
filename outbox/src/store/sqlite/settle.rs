//! The four settlements: each batch is one BEGIN IMMEDIATE transaction.

use std::collections::BTreeMap;

use sqlx::Sqlite;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;

use super::SqliteStore;
use super::batch::Batch;
use super::claim::json;
use super::publish::insert_many;
use crate::error::StoreError;
use crate::message::row::{delay_micros, to_micros};
use crate::publish::Prepared;
use crate::store::{Death, Handled, Inserted, Landed, Lease, Release, Retry};

pub(super) type Statement = Query<'static, Sqlite, SqliteArguments>;

impl SqliteStore {
    pub(super) async fn ack_rows(&self, leases: &[Lease]) -> Result<Landed, StoreError> {
        let ids: Vec<i64> = leases.iter().map(|lease| lease.id).collect();
        self.write("ack", &self.0.batches.ack, json(&ids), leases.iter().copied()).await
    }

    pub(super) async fn ack_and_publish(
        &self,
        acks: &[Handled<'_>],
    ) -> Result<(Landed, Inserted), StoreError> {
        const ACTION: &str = "ack and publish";
        let ids: Vec<i64> = acks.iter().map(|handled| handled.lease.id).collect();
        let leases = acks.iter().map(|handled| handled.lease);
        let mut tx = self.begin(ACTION).await?;
        let landed = self.0.batches.ack.run(ACTION, &mut tx, json(&ids), leases).await?;
        let held = acks.iter().zip(&landed).filter(|&(_, &hit)| hit);
        let messages: Vec<&Prepared> = held.flat_map(|(handled, _)| handled.messages).collect();
        let published = insert_many(&mut tx, &self.0.publish, &messages).await?;
        tx.commit().await.map_err(|error| StoreError::new(ACTION, error, true))?;
        let mut inserted = BTreeMap::<&str, usize>::new();
        for (message, published) in messages.into_iter().zip(published) {
            *inserted.entry(&message.queue).or_default() += usize::from(published.id().is_some());
        }
        let inserted = inserted.into_iter().map(|(queue, rows)| (queue.to_owned(), rows));
        Ok((landed, inserted.collect()))
    }

    pub(super) async fn retry_rows(&self, retries: &[Retry]) -> Result<Landed, StoreError> {
        let row = |retry: &Retry| (retry.lease.id, delay_micros(retry.delay));
        let rows: Vec<_> = retries.iter().map(row).collect();
        let leases = retries.iter().map(|retry| retry.lease);
        self.write("retry", &self.0.batches.retry, json(&rows), leases).await
    }

    pub(super) async fn bury_rows(&self, deaths: &[Death]) -> Result<Landed, StoreError> {
        if self.0.names.dlq().is_none() {
            let leases: Vec<_> = deaths.iter().map(|death| death.lease).collect();
            return self.ack_rows(&leases).await;
        }
        let row = |death: &Death| {
            json(&(
                death.lease.id,
                death.reason.as_str(),
                &death.error_kind,
                &death.last_exception,
                &death.note,
                &death.fingerprint,
            ))
        };
        let rows: Vec<_> = deaths.iter().map(row).collect();
        let leases = deaths.iter().map(|death| death.lease);
        let rows = format!("[{}]", rows.join(","));
        self.write("dead-letter", &self.0.batches.bury, rows, leases).await
    }

    pub(super) async fn release_rows(&self, releases: &[Release]) -> Result<Landed, StoreError> {
        let row = |release: &Release| {
            let due_in = release.due_in.map(delay_micros);
            let not_before = release.not_before().map_or(0, to_micros);
            let uncount = i64::try_from(release.uncount).unwrap_or(i64::MAX);
            (release.lease.id, due_in, uncount, not_before)
        };
        let rows: Vec<_> = releases.iter().map(row).collect();
        let leases = releases.iter().map(|release| release.lease);
        self.write("release", &self.0.batches.release, json(&rows), leases).await
    }

    /// Runs a batch in a transaction of its own.
    pub(super) async fn write(
        &self,
        action: &'static str,
        batch: &Batch,
        rows: String,
        leases: impl ExactSizeIterator<Item = Lease>,
    ) -> Result<Landed, StoreError> {
        let mut tx = self.begin(action).await?;
        let landed = batch.run(action, &mut tx, rows, leases).await?;
        // A failed COMMIT rolls back here, but says "busy" when it may be tried
        // again; either way the caller may repeat the batch.
        tx.commit().await.map_err(|error| StoreError::new(action, error, true))?;
        Ok(landed)
    }
}
