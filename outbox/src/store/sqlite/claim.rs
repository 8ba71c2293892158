//! Taking rows, and when to look again.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::settle::Statement;
use super::{SqliteStore, query};
use crate::error::StoreError;
use crate::message::Row;
use crate::message::row::{delay_micros, from_micros};
use crate::message::to_micros;
use crate::store::{Before, Claim, Claimed, Extend, Landed, Taken};

impl SqliteStore {
    pub(super) async fn claim_rows(&self, claim: &Claim) -> Result<Taken, StoreError> {
        let rows = if claim.limit > 0 && self.any_due(claim).await? {
            self.take(claim).await?
        } else {
            Vec::new()
        };
        let looks = claim.limit == 0 || rows.len() < claim.limit;
        let next = if looks { self.next_due(claim).await? } else { None };
        Ok(Taken { rows, next })
    }

    async fn take(&self, claim: &Claim) -> Result<Vec<Claimed>, StoreError> {
        let failed = StoreError::of;
        let mut tx = self.begin("claim").await?;
        let limit = i64::try_from(claim.limit).unwrap_or(i64::MAX);
        let mut due: Vec<(i64, i64, Option<Uuid>)> = Vec::new();
        for queue in claim.queues.iter() {
            let find = self.find(claim, queue).bind(limit);
            for row in find.fetch_all(&mut *tx).await.map_err(failed("claim"))? {
                let previous = row.try_get(2).map_err(failed("claim"))?;
                due.push((row.get(1), row.get(0), previous));
            }
        }
        due.sort_by_key(|&(at, id, _)| (at, id));
        // A queue may be named twice.
        due.dedup_by_key(|&mut (_, id, _)| id);
        due.truncate(claim.limit);
        let mut claimed = Vec::with_capacity(due.len());
        for (_, id, previous) in due {
            let take = query(&self.0.sql.claim_take).bind(id).bind(claim.token);
            let row = take.fetch_one(&mut *tx).await.map_err(failed("claim"))?;
            let row = read(&row).map_err(failed("read claimed rows"))?;
            claimed.push(Claimed { row, before: Before::of(previous) });
        }
        tx.commit().await.map_err(|error| StoreError::new("claim", error, true))?;
        Ok(claimed)
    }

    /// Looks without the write lock: every commit to the file wakes every claim
    /// loop, and those that have nothing to do must not keep writers waiting.
    async fn any_due(&self, claim: &Claim) -> Result<bool, StoreError> {
        for queue in claim.queues.iter() {
            let find = self.find(claim, queue).bind(1);
            let found = find.fetch_optional(&self.0.reader).await;
            if found.map_err(StoreError::of("claim"))?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lacks the number of rows.
    fn find(&self, claim: &Claim, queue: &str) -> Statement {
        let after = claim.after.map(|after| (to_micros(after.due), after.id));
        query(&self.0.sql.claim_find)
            .bind(queue.to_owned())
            .bind(delay_micros(claim.lease_ttl))
            .bind(after.map_or(i64::MIN, |(at, _)| at))
            .bind(after.map_or(0, |(_, id)| id))
    }

    pub(super) async fn abandon_claim(&self, claim: &Claim) -> Result<u64, StoreError> {
        let mut released = 0;
        for queue in claim.queues.iter() {
            let statement = query(&self.0.sql.abandon).bind(queue.clone()).bind(claim.token);
            let done = statement.execute(&self.0.writer).await;
            released += done.map_err(StoreError::of("abandon"))?.rows_affected();
        }
        Ok(released)
    }

    async fn next_due(&self, claim: &Claim) -> Result<Option<Duration>, StoreError> {
        let mut next = None;
        for queue in claim.queues.iter() {
            let statement = query(&self.0.sql.next_due);
            let statement = statement.bind(queue.clone()).bind(delay_micros(claim.lease_ttl));
            let row = statement.fetch_one(&self.0.reader).await;
            let micros: Option<i64> =
                row.and_then(|row| row.try_get(0)).map_err(StoreError::of("next due time"))?;
            let wait = micros.map(|us| Duration::from_micros(us.max(0).unsigned_abs()));
            next = [next, wait].into_iter().flatten().min();
        }
        Ok(next)
    }

    pub(super) async fn extend_leases(&self, leases: &[Extend]) -> Result<Landed, StoreError> {
        let sql = &self.0.sql.extend;
        self.write(
            "extend",
            leases.iter().map(|extend| {
                let Extend { lease, token } = *extend;
                [query(sql).bind(lease.id).bind(lease.token).bind(token)]
            }),
        )
        .await
    }
}

/// The columns of a row, in the order in which every statement names them.
pub(super) fn read(row: &SqliteRow) -> Result<Row, sqlx::Error> {
    let count = |index| row.try_get::<i64, _>(index).map(|count| count.max(0).unsigned_abs());
    let time = |index| row.try_get::<i64, _>(index).map(from_micros);
    let maybe = |index| row.try_get::<Option<i64>, _>(index).map(|at| at.map(from_micros));
    Ok(Row {
        id: row.try_get(0)?,
        queue: row.try_get(1)?,
        payload: row.try_get::<Vec<u8>, _>(2)?.into(),
        headers: row.try_get(3)?,
        attempts_count: count(4)?,
        deliveries_count: count(5)?,
        created_at: time(6)?,
        next_attempt_at: time(7)?,
        first_attempt_at: maybe(8)?,
        last_attempt_at: maybe(9)?,
        acquired_at: maybe(10)?,
        acquired_token: row.try_get(11)?,
        timer_id: row.try_get(12)?,
    })
}
