//! Taking rows, and when to look again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use uuid::Uuid;

use super::settle::Statement;
use super::{SqliteStore, query};
use crate::error::StoreError;
use crate::message::Row;
use crate::message::row::{delay_micros, from_micros};
use crate::message::to_micros;
use crate::store::{Before, Claim, Claimed, Extend, Landed, Position, Taken};

impl SqliteStore {
    pub(super) async fn claim_rows(&self, claim: &Claim) -> Result<Taken, StoreError> {
        let (rows, left) = if claim.limit > 0 && (claim.expected || self.any_due(claim).await?) {
            self.take(claim).await?
        } else {
            (Vec::new(), false)
        };
        let looks = claim.limit == 0 || rows.len() < claim.limit;
        let next = match (left, looks) {
            (true, _) => Some(Duration::ZERO),
            (false, true) => self.next_due(claim).await?,
            (false, false) => None,
        };
        Ok(Taken { rows, next, crowded: false })
    }

    /// The rows, and whether some were left for their size.
    async fn take(&self, claim: &Claim) -> Result<(Vec<Claimed>, bool), StoreError> {
        let failed = StoreError::of;
        let mut tx = self.begin("claim").await?;
        let mut found: Vec<(SqliteRow, &str)> = Vec::new();
        let mut left = false;
        for (queue, limit) in self.shares(claim, &mut tx).await? {
            let fits = find(&self.0.sql().claim_fits, claim, queue).bind(limit);
            let row = fits.fetch_one(&mut *tx).await.map_err(failed("claim"))?;
            let [limit, due] = [0, 1].map(|column| row.try_get_unchecked::<i64, _>(column));
            let (limit, due) = (limit.map_err(failed("claim"))?, due.map_err(failed("claim"))?);
            left |= limit < due;
            let find = find(&self.0.sql().claim_find, claim, queue).bind(limit);
            let rows = find.fetch_all(&mut *tx).await.map_err(failed("claim"))?;
            found.extend(rows.into_iter().map(|row| (row, queue)));
        }
        let mut ids: Vec<i64> = Vec::with_capacity(found.len());
        for (row, _) in &found {
            ids.push(row.try_get_unchecked(0).map_err(failed("claim"))?);
        }
        let now = found.last().map_or(Ok(0), |(row, _)| row.try_get_unchecked(1));
        let now: i64 = now.map_err(failed("claim"))?;
        let take = query(&self.0.batches.take.sql).bind(json(&ids)).bind(claim.token).bind(now);
        take.execute(&mut *tx).await.map_err(failed("claim"))?;
        tx.commit().await.map_err(|error| StoreError::new("claim", error, true))?;
        // Who waits for the connection gets it before the rows are read, which takes as
        // long as a write.
        tokio::task::yield_now().await;
        let mut claimed = Vec::with_capacity(found.len());
        for ((row, queue), id) in found.iter().zip(ids) {
            let read = claimed_row(row, id, queue, claim.token, now);
            claimed.push(read.map_err(failed("read claimed rows"))?);
        }
        claimed.sort_by_key(|claimed| Position::of(&claimed.row));
        Ok((claimed, left))
    }

    /// How many rows of each queue are to be read: those that come first among all.
    async fn shares<'a>(
        &self,
        claim: &'a Claim,
        connection: &mut SqliteConnection,
    ) -> Result<Vec<(&'a str, i64)>, StoreError> {
        let limit = i64::try_from(claim.limit).unwrap_or(i64::MAX);
        if let [only] = &*claim.queues {
            return Ok(vec![(only, limit)]);
        }
        // A queue may be named twice.
        let queues: BTreeSet<&str> = claim.queues.iter().map(String::as_str).collect();
        let mut places = Vec::new();
        for &queue in &queues {
            let find = find(&self.0.sql().claim_places, claim, queue).bind(limit);
            let row = find.fetch_one(&mut *connection).await;
            let found = row.and_then(|row| parsed::<Vec<(i64, i64)>>(&row, 0));
            let found = found.map_err(StoreError::of("claim"))?;
            places.extend(found.into_iter().map(|place| (place, queue)));
        }
        places.sort_unstable();
        places.truncate(claim.limit);
        let share = |queue| places.iter().filter(|(_, of)| *of == queue).count();
        let shares = queues.into_iter().map(|queue| (queue, share(queue)));
        let wanted = shares.filter(|&(_, rows)| rows > 0);
        Ok(wanted.map(|(queue, rows)| (queue, i64::try_from(rows).unwrap_or(limit))).collect())
    }

    /// Looks without the write lock: every commit to the file wakes every claim
    /// loop, and those that have nothing to do must not keep writers waiting.
    async fn any_due(&self, claim: &Claim) -> Result<bool, StoreError> {
        for queue in claim.queues.iter() {
            let find = find(&self.0.sql().claim_places, claim, queue).bind(1);
            let row = find.fetch_one(&self.0.reader).await;
            let found = row.and_then(|row| parsed::<Vec<(i64, i64)>>(&row, 0));
            if !found.map_err(StoreError::of("claim"))?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(super) async fn abandon_claim(&self, claim: &Claim) -> Result<u64, StoreError> {
        let mut released = 0;
        for queue in claim.queues.iter() {
            let most = i64::try_from(claim.most_deliveries()).unwrap_or(i64::MAX);
            let statement = query(&self.0.sql().abandon);
            let statement = statement.bind(queue.clone()).bind(claim.token).bind(most);
            let done = statement.execute(&self.0.writer).await;
            released += done.map_err(StoreError::of("abandon"))?.rows_affected();
        }
        Ok(released)
    }

    async fn next_due(&self, claim: &Claim) -> Result<Option<Duration>, StoreError> {
        let mut next = None;
        for queue in claim.queues.iter() {
            let statement = query(&self.0.sql().next_due);
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
        let rows: Vec<_> =
            leases.iter().map(|one| (one.lease.id, one.token.simple().to_string())).collect();
        let held = leases.iter().map(|extend| extend.lease);
        self.write("extend", &self.0.batches.extend, json(&rows), held).await
    }
}

/// Lacks the number of rows.
fn find(sql: &Arc<str>, claim: &Claim, queue: &str) -> Statement {
    let after = claim.after.map(|after| (to_micros(after.due), after.id));
    query(sql)
        .bind(queue.to_owned())
        .bind(delay_micros(claim.lease_ttl))
        .bind(after.map_or(i64::MIN, |(at, _)| at))
        .bind(after.map_or(0, |(_, id)| id))
}

type Numbers = (u64, u64, i64, i64, Option<i64>, Option<i64>, String, Option<String>);

/// A row that claim_find read, as claim_take left it.
fn claimed_row(
    row: &SqliteRow,
    id: i64,
    queue: &str,
    token: Uuid,
    now: i64,
) -> Result<Claimed, sqlx::Error> {
    let (attempts, deliveries, created, due, first, last, previous, timer_id): Numbers =
        parsed(row, 4)?;
    // One of another writer may be no token of ours.
    let previous = (!previous.is_empty()).then(|| Uuid::try_parse(&previous).unwrap_or_default());
    let row = Row {
        id,
        queue: queue.to_owned(),
        payload: row.try_get_unchecked::<Vec<u8>, _>(2)?.into(),
        headers: row.try_get_unchecked(3)?,
        attempts_count: attempts,
        deliveries_count: deliveries + 1,
        created_at: from_micros(created),
        next_attempt_at: from_micros(due),
        first_attempt_at: first.map(from_micros),
        last_attempt_at: last.map(from_micros),
        acquired_at: Some(from_micros(now)),
        acquired_token: Some(token),
        timer_id,
    };
    Ok(Claimed { row, before: Before::of(previous) })
}

/// A column that holds JSON which the statement made.
fn parsed<T: DeserializeOwned>(row: &SqliteRow, column: usize) -> Result<T, sqlx::Error> {
    let text: &str = row.try_get_unchecked(column)?;
    serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(error.into()))
}

/// Of numbers and texts, which can always be written.
pub(super) fn json(rows: &impl Serialize) -> String {
    serde_json::to_string(rows).unwrap_or_default()
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
