//! Claims: taking rows, and when to look again. A claim finds the places of due rows, leases these
//! in the same transaction, and reads the rows when it has committed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqlitePool, SqliteRow};
use tokio::time::Instant;
use uuid::Uuid;

use super::desk::text;
use super::settle::Statement;
use super::{SqliteStore, query};
use crate::error::StoreError;
use crate::message::Row;
use crate::message::row::{delay_micros, from_micros};
use crate::message::to_micros;
use crate::store::answers::Columns as _;
use crate::store::{
    Before, CLAIM_BYTES, Claim, Claimed, Expects, Lease, Position, Store as _, Taken,
};
use crate::telemetry::{TARGET, warn};

/// When to look again after a look ahead that failed.
const AGAIN: Duration = Duration::from_secs(1);

impl SqliteStore {
    pub(super) async fn claim_rows(&self, claim: &Claim) -> Result<Taken, StoreError> {
        self.0.place.known("claim")?;
        if self.0.sql.looks_again() {
            // If this look fails, the next one comes after as long.
            let _ = self.validate(false).await;
        }
        let (rows, at, left) = if claim.limit > 0
            && (claim.expects == Expects::Plenty || self.any_due(claim).await?)
        {
            self.take(claim).await?
        } else {
            (Vec::new(), None, false)
        };
        let looks = claim.limit == 0 || rows.len() < claim.limit;
        let next = match (left, looks) {
            (true, _) => Some(Duration::ZERO),
            (false, true) => match self.next_due(claim).await {
                // The rows that are leased must not be lost for it.
                Err(failed) if !rows.is_empty() => {
                    warn!(target: TARGET, error = %failed, "looking ahead failed; looking again");
                    Some(AGAIN)
                }
                next => next?,
            },
            (false, false) => None,
        };
        Ok(Taken { rows, at, next, crowded: false })
    }

    /// Takes rows. Returns them, when it had them, and whether some were left because of their
    /// size.
    async fn take(
        &self,
        claim: &Claim,
    ) -> Result<(Vec<Claimed>, Option<Instant>, bool), StoreError> {
        let failed = StoreError::of;
        let mut tx = self.begin("claim").await?;
        let (mut places, now) = self.places(claim, &mut tx).await?;
        let at = Some(Instant::now());
        let due = places.len();
        let mut before = 0;
        places.retain(|place| {
            let fits = before < CLAIM_BYTES;
            before = before.saturating_add(place.bytes);
            fits
        });
        let lease = |place: &DueRow| (Lease { id: place.id, token: claim.token }, ());
        let rows: Vec<_> = places.iter().map(lease).collect();
        let batches = &self.0.batches;
        let runs = batches.runs("claim", &mut tx, &rows, true).await?;
        let take = query(batches.take.sql(&runs)).bind(runs.heads()).bind(runs.names()).bind(now);
        take.execute(&mut *tx).await.map_err(failed("claim"))?;
        tx.commit().await.map_err(|error| StoreError::new("claim", error, true))?;
        let left = places.len() < due;
        // Queue by queue, each in the order of its rows.
        places.sort_unstable_by_key(|place| (place.queue, place.due, place.id));
        let reads = places.chunk_by(|one, other| one.queue == other.queue);
        let reads = reads.flat_map(|places| self.reads(claim, places)).collect();
        let (queues, token) = (Arc::clone(&claim.queues), claim.token);
        let leased = Leased { places, queues, token, now };
        // On a task of its own, beside the next write and the next claim: reading the rows takes as
        // long as leasing them.
        let read = tokio::spawn(leased.read(self.0.reader.clone(), reads)).await;
        let read = read.map_err(|error| StoreError::new("claim", error, true))?;
        // The rows are leased all the same.
        let unread = |error| StoreError {
            perhaps_done: true,
            transient: true,
            ..failed("read claimed rows")(error)
        };
        Ok((read.map_err(unread)?, at, left))
    }

    /// The due rows of all its queues that come first, and the time.
    async fn places(
        &self,
        claim: &Claim,
        connection: &mut SqliteConnection,
    ) -> Result<(Vec<DueRow>, i64), StoreError> {
        // A queue may be named twice.
        let queues: BTreeMap<&str, usize> =
            claim.queues.iter().map(String::as_str).zip(0..).collect();
        let (mut places, mut now) = (Vec::new(), 0);
        for (name, &queue) in &queues {
            let find = self.find(claim, name, claim.limit).fetch_one(&mut *connection);
            let row = find.await.map_err(StoreError::of("claim"))?;
            let found = found(&row, queue).and_then(|found| Ok((found, row.try_get(1)?)));
            let (found, at) = found.map_err(StoreError::of("claim"))?;
            places.extend(found);
            now = at;
        }
        if queues.len() > 1 {
            places.sort_unstable_by_key(|place| (place.due, place.id));
            places.truncate(claim.limit);
        }
        Ok((places, now))
    }

    /// Whether anything is due. It looks without the write lock: every commit to the file wakes
    /// every claim loop, and loops that have nothing to do must not keep writers waiting.
    async fn any_due(&self, claim: &Claim) -> Result<bool, StoreError> {
        for queue in claim.queues.iter() {
            let row = self.find(claim, queue, 1).fetch_one(&self.0.reader).await;
            let found = row.and_then(|row| Ok(!found(&row, 0)?.is_empty()));
            if found.map_err(StoreError::of("claim"))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The statements that read what was taken of one queue, given its places in order: one for the
    /// rows of the first due time, and one for the later rows.
    fn reads(&self, claim: &Claim, places: &[DueRow]) -> impl Iterator<Item = Statement> {
        let (first, last) = (&places[0], &places[places.len() - 1]);
        let (soonest, later) =
            places.split_at(places.partition_point(|place| place.due == first.due));
        let read = |sql, till: i64, places: &[DueRow]| {
            query(sql)
                .bind(claim.queues[first.queue].clone())
                .bind(claim.token)
                .bind(first.due)
                .bind(till)
                .bind(i64::try_from(places.len()).unwrap_or(i64::MAX))
        };
        let sql = &self.0.sql;
        let later = (!later.is_empty()).then(|| read(&sql.claim_read_later, last.due, later));
        std::iter::once(read(&sql.claim_read, first.id, soonest)).chain(later)
    }

    /// A statement that finds the due rows of a queue, `most` of them at most.
    fn find(&self, claim: &Claim, queue: &str, most: usize) -> Statement {
        let (due, id) = begins(claim);
        query(&self.0.sql.claim_places)
            .bind(queue.to_owned())
            .bind(delay_micros(claim.lease_ttl))
            .bind(due)
            .bind(id)
            .bind(i64::try_from(most).unwrap_or(i64::MAX))
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
}

/// The place behind which a claim begins.
pub(super) fn begins(claim: &Claim) -> (i64, i64) {
    claim.after.map_or((i64::MIN, i64::MIN), |after| (to_micros(after.due), after.id))
}

/// A row that is due.
struct DueRow {
    /// The index of its queue among those of the claim.
    queue: usize,
    due: i64,
    id: i64,
    bytes: usize,
    previous: Option<String>,
}

fn found(row: &SqliteRow, queue: usize) -> Result<Vec<DueRow>, sqlx::Error> {
    let found: Vec<(i64, i64, usize, Option<String>)> = parsed(row, 0)?;
    let place = |(due, id, bytes, previous)| DueRow { queue, due, id, bytes, previous };
    Ok(found.into_iter().map(place).collect())
}

type Numbers = (i64, i64, i64, i64, Option<i64>, Option<i64>, Option<String>);

/// What a claim has leased.
struct Leased {
    places: Vec<DueRow>,
    queues: Arc<[String]>,
    token: Uuid,
    now: i64,
}

impl Leased {
    async fn read(
        self,
        pool: SqlitePool,
        reads: Vec<Statement>,
    ) -> Result<Vec<Claimed>, sqlx::Error> {
        let mut rows = Vec::with_capacity(self.places.len());
        for read in reads {
            rows.extend(read.fetch_all(&pool).await?);
        }
        // Both are in the same order. A row that somebody deleted meanwhile was not read.
        let mut places = self.places.iter();
        let mut claimed = Vec::with_capacity(rows.len());
        for row in rows {
            let numbers: Numbers = parsed(&row, 2)?;
            if let Some(place) = places.find(|place| place.id == numbers.0) {
                claimed.push(self.claimed(&row, place, numbers)?);
            }
        }
        claimed.sort_by_key(|claimed| Position::of(&claimed.row));
        Ok(claimed)
    }

    /// Makes a claimed row of what claim_read read.
    fn claimed(
        &self,
        row: &SqliteRow,
        place: &DueRow,
        (id, attempts, deliveries, created, first, last, timer_id): Numbers,
    ) -> Result<Claimed, sqlx::Error> {
        let headers: Option<Vec<u8>> = row.try_get_unchecked(1)?;
        // What other writers left there must not stop the queue.
        let count = |number: i64| number.max(0).unsigned_abs();
        // The token of another writer may be none of ours.
        let previous = place.previous.as_deref();
        let previous = previous.map(|token| Uuid::try_parse(token).unwrap_or_default());
        let row = Row {
            id,
            queue: self.queues[place.queue].clone(),
            payload: row.try_get_unchecked::<Vec<u8>, _>(0)?.into(),
            headers: headers.map(|bytes| String::from_utf8_lossy(&bytes).into_owned().into()),
            attempts_count: count(attempts),
            deliveries_count: count(deliveries),
            created_at: from_micros(created),
            next_attempt_at: from_micros(place.due),
            first_attempt_at: first.map(from_micros),
            last_attempt_at: last.map(from_micros),
            acquired_at: Some(from_micros(self.now)),
            acquired_token: Some(self.token),
            timer_id,
        };
        Ok(Claimed { row: Box::new(row), before: Before::of(previous) })
    }
}

/// Reads a column with JSON that the statement made of texts, which may not be UTF-8.
fn parsed<T: DeserializeOwned>(row: &SqliteRow, column: usize) -> Result<T, sqlx::Error> {
    let text: &[u8] = row.try_get_unchecked(column)?;
    let text = String::from_utf8_lossy(text);
    serde_json::from_str(&text).map_err(|error| sqlx::Error::Decode(error.into()))
}

/// Writes numbers and texts as JSON, which always works.
pub(super) fn json(rows: &impl Serialize) -> String {
    serde_json::to_string(rows).unwrap_or_default()
}

/// The columns of a row, in the order in which every statement names them.
pub(super) fn read(row: &SqliteRow) -> Result<Row, sqlx::Error> {
    let count = |index| row.try_get::<i64, _>(index).map(|count| count.max(0).unsigned_abs());
    let time = |index| row.try_get::<i64, _>(index).map(from_micros);
    let maybe = |index| row.try_get::<Option<i64>, _>(index).map(|at| at.map(from_micros));
    // The token of another writer may be none of ours.
    let token = |bytes: Vec<u8>| Uuid::from_slice(&bytes).unwrap_or_default();
    Ok(Row {
        id: row.try_get(0)?,
        queue: text(row, 1)?,
        payload: row.try_get_unchecked::<Vec<u8>, _>(2)?.into(),
        headers: row.maybe(3, text)?.map(Into::into),
        attempts_count: count(4)?,
        deliveries_count: count(5)?,
        created_at: time(6)?,
        next_attempt_at: time(7)?,
        first_attempt_at: maybe(8)?,
        last_attempt_at: maybe(9)?,
        acquired_at: maybe(10)?,
        acquired_token: row.try_get_unchecked::<Option<_>, _>(11)?.map(token),
        timer_id: row.maybe(12, text)?,
    })
}
