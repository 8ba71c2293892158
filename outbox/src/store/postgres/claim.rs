//! Claims: taking rows, and when to look again. One claim of one queue has statements of its own,
//! which are shorter: `claim_few` for what follows a wake, and `claim_full` for draining a backlog.
//! `claim` does everything else.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use sqlx::postgres::{PgRow, PgValue, PgValueRef};
use sqlx::{Connection as _, Row as _, Value, ValueRef};

use super::time::PgTime;
use super::{PgStore, Statement, query};
use crate::error::StoreError;
use crate::message::row::delay_micros;
use crate::message::{Row, Stored};
use crate::store::{Before, Claim, Claimed, Expects, Position, Store as _, Taken};

impl PgStore {
    pub(super) async fn claim_rows(&self, claims: &[Claim]) -> Result<Vec<Taken>, StoreError> {
        if self.0.sql.looks_again() {
            // If this look fails, the next one comes after as long.
            let _ = self.validate(false).await;
        }
        let answers = match self.claim_shortly(claims).await? {
            Some(answers) => answers,
            None => self.claim_by(self.claim_of_many(claims), take, claims).await?,
        };
        let taken: Vec<_> = answers.into_iter().map(|one| one.taken).collect();
        self.claimed(taken.iter().map(|one| one.rows.len()).sum());
        Ok(taken)
    }

    /// Uses the statements for one claim of one queue. `None` if the other statement has to do it:
    /// there are more claims or queues, or these statements cannot take what is there.
    async fn claim_shortly(&self, claims: &[Claim]) -> Result<Option<Vec<Answer>>, StoreError> {
        let [one] = claims else { return Ok(None) };
        if one.queues.len() != 1 {
            return Ok(None);
        }
        if let Some(lanes) = self.lanes(claims).filter(|_| one.limit > 0) {
            let statement = of_one_queue(&self.0.sql.claim_full, one).bind(lanes);
            return self.claim_by(statement, take_full, claims).await.map(Some);
        }
        if one.expects != Expects::Few {
            return Ok(None);
        }
        let statement = of_one_queue(&self.0.sql.claim_few, one);
        let answers = self.claim_by(statement, take_few, claims).await?;
        Ok(answers.iter().all(|one| one.looked).then_some(answers))
    }

    async fn claim_by(
        &self,
        statement: Statement,
        take: Take,
        claims: &[Claim],
    ) -> Result<Vec<Answer>, StoreError> {
        let claims = claims.to_vec();
        // Each row is read as it comes: a thousand rows that wait to be read are out of the cache.
        self.bounded("claim", |connection| {
            Box::pin(async move {
                let mut answers: Vec<_> = claims.iter().map(|_| Answer::default()).collect();
                let mut rows = statement.fetch(&mut *connection);
                while let Some(row) = rows.try_next().await? {
                    take(&row, &claims, &mut answers)?;
                }
                drop(rows);
                for (one, claim) in answers.iter_mut().zip(&claims) {
                    one.ends(claim.limit);
                }
                let all = answers.iter().flat_map(|one| &one.taken.rows);
                if all.into_iter().any(|one| one.row.bytes() >= LARGE) {
                    // Its buffer would stay as large as the largest row so far.
                    connection.shrink_buffers();
                }
                Ok(answers)
            })
        })
        .await
    }

    fn claim_of_many(&self, claims: &[Claim]) -> Statement {
        let of_each = |claim: fn(&Claim) -> i64| claims.iter().map(claim).collect::<Vec<_>>();
        let after = || claims.iter().map(|claim| claim.after);
        let queues = || {
            let numbered = (1_i64..).zip(claims);
            numbered.flat_map(|(place, claim)| claim.queues.iter().map(move |one| (place, one)))
        };
        query(&self.0.sql.claim)
            .bind(of_each(Claim::most_rows))
            .bind(of_each(|claim| delay_micros(claim.lease_ttl)))
            .bind(claims.iter().map(|claim| claim.token).collect::<Vec<_>>())
            .bind(after().map(|after| after.map(|it| PgTime(it.due))).collect::<Vec<_>>())
            .bind(after().map(|after| after.map(|it| it.id)).collect::<Vec<_>>())
            .bind(queues().map(|(_, queue)| queue.clone()).collect::<Vec<_>>())
            .bind(queues().map(|(place, _)| place).collect::<Vec<_>>())
            .bind(self.lanes(claims))
    }

    /// The name that claims share which are in each other's way: the table, and a queue that has
    /// plenty of rows. Single rows are taken too fast to ask.
    fn lanes(&self, claims: &[Claim]) -> Option<String> {
        let queue = claims.iter().find(|claim| claim.expects == Expects::Plenty)?.queues.first()?;
        Some(format!("{} claims {queue}", self.0.names.channel()))
    }
}

fn of_one_queue(sql: &Arc<str>, claim: &Claim) -> Statement {
    query(sql)
        .bind(claim.most_rows())
        .bind(delay_micros(claim.lease_ttl))
        .bind(claim.token)
        .bind(claim.after.map(|after| PgTime(after.due)))
        .bind(claim.after.map(|after| after.id))
        .bind(claim.queues[0].clone())
}

/// What came back for a claim.
#[derive(Default)]
struct Answer {
    taken: Taken,
    /// The answer said how long to wait, or that nobody knows.
    looked: bool,
    /// The claim locked rows that it did not take.
    left: bool,
}

impl Answer {
    /// Notes how long to wait in microseconds, or that nobody knows.
    fn waits(&mut self, us: Option<i64>) {
        let wait = us.map(|us| Duration::from_micros(us.max(0).unsigned_abs()));
        self.taken.next = [self.taken.next, wait].into_iter().flatten().min();
        self.looked = true;
    }

    fn ends(&mut self, limit: usize) {
        let Self { taken, looked, left } = self;
        let got = taken.rows.len();
        if got < limit && (!*looked || *left) {
            // There were more rows, and somebody wrote to them meanwhile.
            taken.next = Some(Duration::ZERO);
        } else if got == limit && limit > 0 {
            taken.next = None;
        }
        // RETURNING promises no order.
        taken.rows.sort_by_key(|claimed| Position::of(&claimed.row));
    }
}

/// Adds a row of an answer to what came back for these claims.
type Take = fn(&PgRow, &[Claim], &mut [Answer]) -> Result<(), sqlx::Error>;

/// Reads a row of the answer: a row that was taken, how long to wait for the next one, or that
/// others are claiming.
fn take(row: &PgRow, claims: &[Claim], answers: &mut [Answer]) -> Result<(), sqlx::Error> {
    let place: i64 = row.try_get_unchecked(14)?;
    if place == 0 {
        for one in answers.iter_mut() {
            one.taken.crowded = true;
        }
        return Ok(());
    }
    let at = usize::try_from(place - 1).unwrap_or(usize::MAX);
    let (Some(one), Some(claim)) = (answers.get_mut(at), claims.get(at)) else { return Ok(()) };
    if row.try_get_raw(0)?.is_null() {
        one.waits(row.try_get_unchecked(15)?);
        return Ok(());
    }
    let before = Before::of(row.try_get_unchecked(13)?);
    let mut row = Box::new(read(row)?);
    row.acquired_token = Some(claim.token);
    one.taken.rows.push(Claimed { row, before });
    Ok(())
}

/// As [`take`], for a claim that expected plenty.
fn take_full(row: &PgRow, claims: &[Claim], answers: &mut [Answer]) -> Result<(), sqlx::Error> {
    for (one, claim) in answers.iter_mut().zip(claims) {
        one.taken.crowded = row.try_get_unchecked::<Option<_>, _>(12)?.unwrap_or_default();
        let before = Before::of(row.try_get_unchecked(11)?);
        one.taken.rows.push(Claimed { row: read_of_one_queue(row, claim)?, before });
    }
    Ok(())
}

/// As [`take`], for a claim that expected few: each row of its answer says how long to wait.
fn take_few(row: &PgRow, claims: &[Claim], answers: &mut [Answer]) -> Result<(), sqlx::Error> {
    for (one, claim) in answers.iter_mut().zip(claims) {
        let wait: Option<i64> = row.try_get_unchecked(11)?;
        if wait.is_some_and(i64::is_negative) {
            return Ok(());
        }
        one.waits(wait);
        if !row.try_get_raw(0)?.is_null() {
            let row = read_of_one_queue(row, claim)?;
            one.taken.rows.push(Claimed { row, before: Before::Settled });
        }
        let locked: Option<i32> = row.try_get_unchecked(12)?;
        let locked = locked.and_then(|locked| usize::try_from(locked).ok());
        one.left = locked.is_some_and(|locked| locked > one.taken.rows.len());
    }
    Ok(())
}

/// A payload of this many bytes or more is not copied.
const LARGE: usize = 1 << 20;

/// A payload that stays in the answer with which it came.
struct OwnedPayload(PgValue);

impl AsRef<[u8]> for OwnedPayload {
    fn as_ref(&self) -> &[u8] {
        Value::as_ref(&self.0).as_bytes().unwrap_or_default()
    }
}

fn payload(value: &PgValueRef<'_>) -> Result<Bytes, sqlx::Error> {
    match value.as_bytes() {
        Ok(bytes) if bytes.len() < LARGE => Ok(Bytes::copy_from_slice(bytes)),
        Ok(_) => Ok(Bytes::from_owner(OwnedPayload(ValueRef::to_owned(value)))),
        Err(missing) => Err(sqlx::Error::Decode(missing)),
    }
}

/// The columns of a row, in the order in which every statement names them. Their types
/// are checked when the app starts, not again for each row.
pub(super) fn read(row: &PgRow) -> Result<Row, sqlx::Error> {
    let read = read_from(row, 2)?;
    let (queue, acquired_token) = (row.try_get_unchecked(1)?, row.try_get_unchecked(11)?);
    Ok(Row { queue, acquired_token, timer_id: row.try_get_unchecked(12)?, ..read })
}

/// Reads a row of a claim of one queue. What is the same for all its rows did not come.
fn read_of_one_queue(row: &PgRow, claim: &Claim) -> Result<Box<Row>, sqlx::Error> {
    let mut read = Box::new(read_from(row, 1)?);
    read.queue.clone_from(&claim.queues[0]);
    read.acquired_token = Some(claim.token);
    read.timer_id = row.try_get_unchecked(10)?;
    Ok(read)
}

/// Reads the id, and the columns from the payload to the time of the lease.
fn read_from(row: &PgRow, first: usize) -> Result<Row, sqlx::Error> {
    let count = |at: usize| {
        row.try_get_unchecked::<i64, _>(first + at).map(|count| count.max(0).unsigned_abs())
    };
    let time = |at: usize| row.try_get_unchecked::<PgTime, _>(first + at).map(|time| time.0);
    let maybe = |at: usize| {
        row.try_get_unchecked::<Option<PgTime>, _>(first + at).map(|at| at.map(|time| time.0))
    };
    Ok(Row {
        id: row.try_get_unchecked(0)?,
        queue: String::new(),
        payload: payload(&row.try_get_raw(first)?)?,
        headers: headers(&row.try_get_raw(first + 1)?)?,
        attempts_count: count(2)?,
        deliveries_count: count(3)?,
        created_at: time(4)?,
        next_attempt_at: time(5)?,
        first_attempt_at: maybe(6)?,
        last_attempt_at: maybe(7)?,
        acquired_at: maybe(8)?,
        acquired_token: None,
        timer_id: None,
    })
}

/// Reads a `jsonb`, as text.
fn headers(value: &PgValueRef<'_>) -> Result<Option<Stored>, sqlx::Error> {
    if value.is_null() {
        return Ok(None);
    }
    let bytes = value.as_bytes().map_err(sqlx::Error::Decode)?;
    Ok(Some(Stored::Jsonb(bytes.into())))
}
