//! [`Store`] for SQLite. A batch of settlements is one BEGIN IMMEDIATE transaction. Claims and
//! gauges have files of their own.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Executor as _, Sqlite, Transaction};

use super::batch::Batch;
use super::claim::begins;
use super::connect::code;
use super::listen::SqliteWakes;
use super::publish::insert_returned;
use super::validate::validate;
use super::{SqliteStore, query, unless_sent};
use crate::error::StoreError;
use crate::message::row::{delay_micros, to_micros};
use crate::publish::Prepared;
use crate::schema::SchemaMismatch;
use crate::store::counted::counted;
use crate::store::{
    Claim, Connections, Death, Depth, Extend, Handled, Inserted, Landed, Lease, Release, Result,
    Retry, Store, Taken,
};
use crate::telemetry::{TARGET, warn};

/// The low byte of SQLite's codes for what a constraint refuses.
const CONSTRAINT: u32 = 19;
/// When a claim is made again that failed beside others.
const AGAIN: Duration = Duration::from_millis(100);

pub(super) type Statement = Query<'static, Sqlite, SqliteArguments>;

impl Store for SqliteStore {
    type Wakes = SqliteWakes;

    async fn claim(&self, claims: &[Claim]) -> Result<Vec<Taken>> {
        let mut taken: Vec<Taken> = Vec::with_capacity(claims.len());
        for claim in claims {
            match self.claim_rows(claim).await {
                Ok(rows) => taken.push(rows),
                // What was taken before this stays taken: each claim is a transaction. The next
                // claim fails again, or the failure has passed.
                Err(failed)
                    if !failed.perhaps_done && taken.iter().any(|one| !one.rows.is_empty()) =>
                {
                    warn!(target: TARGET, error = %failed, "some rows were not claimed");
                    let again = || Taken { next: Some(AGAIN), ..Taken::default() };
                    taken.resize_with(claims.len(), again);
                    break;
                }
                Err(failed) => return Err(failed),
            }
        }
        Ok(taken)
    }

    async fn ack(&self, leases: &[Lease]) -> Result<Landed> {
        let rows: Vec<_> = leases.iter().map(|lease| (*lease, ())).collect();
        self.write("ack", &self.0.batches.ack, &rows).await
    }

    async fn ack_publishing(&self, acks: &[Handled<'_>]) -> Result<(Landed, Inserted)> {
        const ACTION: &str = "ack and publish";
        let rows: Vec<_> = acks.iter().map(|handled| (handled.lease, ())).collect();
        let (mut tx, landed) = self.written(ACTION, &self.0.batches.ack, &rows).await?;
        let held = acks.iter().zip(&landed).filter(|&(_, &hit)| hit);
        let messages: Vec<&Prepared> = held.flat_map(|(handled, _)| handled.messages).collect();
        let published = insert_returned(&mut tx, &self.0.publish, &messages).await?;
        tx.commit().await.map_err(uncommitted(ACTION))?;
        let mut inserted = BTreeMap::<&str, usize>::new();
        for (message, published) in messages.into_iter().zip(published) {
            *inserted.entry(&message.queue).or_default() += published.rows();
        }
        let inserted = inserted.into_iter().map(|(queue, rows)| (queue.to_owned(), rows));
        Ok((landed, inserted.collect()))
    }

    async fn retry(&self, retries: &[Retry]) -> Result<Landed> {
        let row = |retry: &Retry| (retry.lease, delay_micros(retry.delay));
        let rows: Vec<_> = retries.iter().map(row).collect();
        self.write("retry", &self.0.batches.retry, &rows).await
    }

    async fn bury(&self, deaths: &[Death<'_>]) -> Result<Landed> {
        if self.0.names.dlq().is_none() {
            let leases: Vec<_> = deaths.iter().map(|death| death.lease).collect();
            return self.ack(&leases).await;
        }
        let rows: Vec<_> = deaths.iter().map(|death| (death.lease, death.texts())).collect();
        self.write("dead-letter", &self.0.batches.bury, &rows).await
    }

    async fn release(&self, releases: &[Release]) -> Result<Landed> {
        let row = |release: &Release| {
            let due_in = release.due_in.map(delay_micros);
            let not_before = release.not_before().map(to_micros);
            let uncount = i64::try_from(release.uncount).unwrap_or(i64::MAX);
            (release.lease, (due_in, uncount, not_before))
        };
        let rows: Vec<_> = releases.iter().map(row).collect();
        self.write("release", &self.0.batches.release, &rows).await
    }

    async fn extend(&self, leases: &[Extend]) -> Result<Landed> {
        let rows: Vec<_> =
            leases.iter().map(|one| (one.lease, one.token.simple().to_string())).collect();
        self.write("extend", &self.0.batches.extend, &rows).await
    }

    async fn abandon(&self, claim: &Claim) -> Result<u64> {
        let mut released = 0;
        let mut writer = self.0.writer.acquire().await.map_err(unless_sent("abandon"))?;
        for queue in claim.queues.iter() {
            let most = i64::try_from(claim.most_deliveries()).unwrap_or(i64::MAX);
            let statement = query(&self.0.sql.abandon);
            let statement = statement.bind(queue.clone()).bind(claim.token).bind(most);
            let (due, id) = begins(claim);
            let statement = statement.bind(due).bind(id);
            let done = statement.execute(&mut *writer).await;
            released += done.map_err(StoreError::of("abandon"))?.rows_affected();
        }
        Ok(released)
    }

    async fn listen(&self) -> Result<Self::Wakes> {
        SqliteWakes::connect(&self.0.reader).await
    }

    fn keeps_dead_letters(&self) -> bool {
        self.0.names.dlq().is_some()
    }

    async fn validate(&self, _: bool) -> Result<SchemaMismatch> {
        let found = validate(&self.0.reader, &self.0.names).await?;
        self.0.sql.set(found.unpausable);
        Ok(found)
    }

    async fn ping(&self) -> Result<()> {
        // `SELECT 1` would not look at the file.
        self.0
            .reader
            .execute("PRAGMA schema_version")
            .await
            .map(drop)
            .map_err(StoreError::of("ping"))?;
        self.0.place.known("ping")
    }

    async fn depths(&self, queues: &[String], most: usize) -> Result<Vec<Depth>> {
        self.depths_of(queues, most).await
    }

    fn connections(&self) -> Connections {
        let (reads, writes) = (counted(&self.0.reader), counted(&self.0.writer));
        Connections { open: reads.0 + writes.0, idle: reads.1 + writes.1, most: 3 }
    }

    async fn close(&self) {
        self.0.reader.close().await;
        self.0.writer.close().await;
    }
}

impl SqliteStore {
    /// Runs a batch in a transaction of its own.
    async fn write<T: Serialize + PartialEq>(
        &self,
        action: &'static str,
        batch: &Batch,
        rows: &[(Lease, T)],
    ) -> Result<Landed> {
        let (tx, landed) = self.written(action, batch, rows).await?;
        tx.commit().await.map_err(uncommitted(action))?;
        Ok(landed)
    }

    /// Runs a batch in a transaction that is still to be committed.
    async fn written<T: Serialize + PartialEq>(
        &self,
        action: &'static str,
        batch: &Batch,
        rows: &[(Lease, T)],
    ) -> Result<(Transaction<'static, Sqlite>, Landed)> {
        let mut ranges = true;
        loop {
            let mut tx = self.begin(action).await?;
            let runs = self.0.batches.runs(action, &mut tx, rows, ranges).await?;
            let lost = self.0.batches.run(batch, action, &mut tx, &runs).await?;
            if let Some(landed) = runs.landed(&lost) {
                return Ok((tx, landed));
            }
            // Some lease of a range is lost. Each row by itself will tell which one.
            tx.rollback().await.map_err(StoreError::of(action))?;
            ranges = false;
        }
    }
}

/// A COMMIT that fails rolls back here, but says "busy" when it may be tried again. Either way the
/// caller may repeat the batch, unless a constraint of the user's that is deferred refuses it.
fn uncommitted(action: &'static str) -> impl Fn(sqlx::Error) -> StoreError {
    move |error| {
        if code(&error).is_some_and(|code| code & 0xff == CONSTRAINT) {
            StoreError::of(action)(error)
        } else {
            StoreError::new(action, error, true)
        }
    }
}
