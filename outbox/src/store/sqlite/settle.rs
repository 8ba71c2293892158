//! The four settlements: each batch is one BEGIN IMMEDIATE transaction.

use sqlx::Sqlite;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;

use super::publish::insert;
use super::{SqliteStore, query};
use crate::error::StoreError;
use crate::message::row::{delay_micros, to_micros};
use crate::store::{Death, Handled, Landed, Lease, Release, Retry};

pub(super) type Statement = Query<'static, Sqlite, SqliteArguments>;

impl SqliteStore {
    pub(super) async fn ack_rows(&self, leases: &[Lease]) -> Result<Landed, StoreError> {
        self.write("ack", leases.iter().map(|&lease| [self.delete(lease)])).await
    }

    pub(super) async fn ack_and_publish(&self, acks: &[Handled<'_>]) -> Result<Landed, StoreError> {
        let mut tx = self.begin("ack and publish").await?;
        let mut landed = Vec::with_capacity(acks.len());
        for handled in acks {
            let delete = self.delete(handled.lease).execute(&mut *tx).await;
            let hit = delete.map_err(StoreError::of("ack and publish"))?.rows_affected() == 1;
            if hit {
                for message in handled.messages {
                    insert(&mut tx, &self.0.publish, message).await?;
                }
            }
            landed.push(hit);
        }
        tx.commit().await.map_err(|error| StoreError::new("ack and publish", error, true))?;
        Ok(landed)
    }

    pub(super) async fn retry_rows(&self, retries: &[Retry]) -> Result<Landed, StoreError> {
        let sql = &self.0.sql.retry;
        self.write(
            "retry",
            retries.iter().map(|Retry { lease, delay }| {
                [query(sql).bind(lease.id).bind(lease.token).bind(delay_micros(*delay))]
            }),
        )
        .await
    }

    pub(super) async fn bury_rows(&self, deaths: &[Death]) -> Result<Landed, StoreError> {
        if self.0.names.dlq().is_none() {
            let leases: Vec<_> = deaths.iter().map(|death| death.lease).collect();
            return self.ack_rows(&leases).await;
        }
        let sql = &self.0.sql.bury;
        self.write(
            "dead-letter",
            deaths.iter().map(|death| {
                let copy = query(sql)
                    .bind(death.lease.id)
                    .bind(death.lease.token)
                    .bind(death.reason.as_str())
                    .bind(death.error_kind.clone())
                    .bind(death.last_exception.clone())
                    .bind(death.note.clone());
                [copy, self.delete(death.lease)]
            }),
        )
        .await
    }

    pub(super) async fn release_rows(&self, releases: &[Release]) -> Result<Landed, StoreError> {
        let sql = &self.0.sql.release;
        self.write(
            "release",
            releases.iter().map(|release| {
                let Release { lease, due_in, uncount, .. } = release;
                [query(sql)
                    .bind(lease.id)
                    .bind(lease.token)
                    .bind(due_in.map(delay_micros))
                    .bind(i64::from(*uncount))
                    .bind(release.not_before().map_or(0, to_micros))]
            }),
        )
        .await
    }

    fn delete(&self, lease: Lease) -> Statement {
        query(&self.0.sql.ack).bind(lease.id).bind(lease.token)
    }

    /// Runs the statements of each settlement, all of one batch in one
    /// transaction. The statements of one settlement must agree on whether they
    /// hit the row: copying without deleting would double it, deleting without
    /// copying would lose it.
    pub(super) async fn write<const N: usize>(
        &self,
        action: &'static str,
        settlements: impl Iterator<Item = [Statement; N]>,
    ) -> Result<Landed, StoreError> {
        // Built before the first await: the iterator need not be `Send`.
        let settlements: Vec<_> = settlements.collect();
        let mut tx = self.begin(action).await?;
        let mut landed = Vec::with_capacity(settlements.len());
        for statements in settlements {
            let mut hits = [0; N];
            for (statement, hit) in statements.into_iter().zip(&mut hits) {
                let done = statement.execute(&mut *tx).await.map_err(StoreError::of(action))?;
                *hit = done.rows_affected();
            }
            if hits.iter().any(|hit| *hit != hits[0]) {
                let why = format!("the statements of one row hit {hits:?} rows");
                return Err(StoreError::new(action, why, false));
            }
            landed.push(hits[0] == 1);
        }
        // A failed COMMIT rolls back here, but says "busy" when it may be tried
        // again; either way the caller may repeat the batch.
        tx.commit().await.map_err(|error| StoreError::new(action, error, true))?;
        Ok(landed)
    }
}
