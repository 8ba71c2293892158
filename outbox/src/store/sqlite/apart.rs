//! Transactions that the test broker lends. The broker's rows live in memory, so what such a
//! transaction publishes is taken out of the database's table again.

use std::time::Duration;

use sqlx::{Row as _, Sqlite, SqliteConnection, SqlitePool};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use super::claim::read;
use super::connect::{commit, roll_back};
use super::lend::{SqliteLender, goes_on};
use super::{query, schema};
use crate::error::StoreError;
use crate::extract::{Begun, Elsewhere, Ended};
use crate::message::{Row, Stored};
use crate::publish::{Due, Prepared, Publisher};
use crate::store::names::TableNames;
use crate::store::{Handled, sql};

/// Where the rows of such transactions lie.
pub(super) struct Apart {
    names: TableNames,
    /// Set once its tables are made.
    made: OnceCell<()>,
    /// How every such transaction begins.
    elsewhere: Elsewhere,
}

/// A connection that was dropped comes back to its pool in a task of its own.
const FREE_WITHIN: Duration = Duration::from_secs(1);

/// Whether there is anything to take.
const ANY: &str = "SELECT 1 FROM \"outbox\" LIMIT 1";
/// The id of the last row that was there before.
const LAST: &str = "SELECT coalesce(max(id), 0) FROM \"outbox\"";

impl SqliteLender {
    pub(crate) fn elsewhere(pool: SqlitePool, names: TableNames, elsewhere: Elsewhere) -> Self {
        let mut lender = Self::new(pool);
        lender.apart = Some(Apart { names, made: OnceCell::new(), elsewhere });
        lender
    }

    /// Takes what the test's own transactions have published out of its table. `None` if no
    /// connection comes free: the test may hold the only one.
    pub(crate) async fn published_beside(&self) -> Result<Option<Vec<Prepared>>, StoreError> {
        let Some(Apart { names, elsewhere, .. }) = &self.apart else { return Ok(None) };
        let failed = StoreError::of("take what was published");
        let Ok(free) = timeout(FREE_WITHIN, self.pool.acquire()).await else { return Ok(None) };
        let mut connection = free.map_err(&failed)?;
        match query(&names.sql(ANY)).fetch_optional(&mut *connection).await {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(Some(Vec::new())),
            // Nothing was published yet.
            Err(sqlx::Error::Database(none)) if none.message().starts_with("no such table") => {
                return Ok(Some(Vec::new()));
            }
            Err(error) => return Err(failed(error)),
        }
        take(&mut connection, names, 0, &mut elsewhere.clone()).await.map(Some)
    }
}

impl Apart {
    /// Makes its tables, if they are not made yet.
    pub(super) async fn make(&self, pool: &SqlitePool) -> Result<(), StoreError> {
        self.made.get_or_try_init(|| schema::migrate(pool, &self.names)).await.map(drop)
    }

    /// Notes what is there when a transaction has begun.
    pub(super) async fn begun(&self, tx: &mut SqliteConnection) -> Result<Elsewhere, StoreError> {
        let last = query(&self.names.sql(LAST)).fetch_one(tx).await;
        let last = last.and_then(|row| row.try_get(0)).map_err(StoreError::of("begin"))?;
        Ok(self.elsewhere.clone().after(last))
    }

    /// Commits a transaction, if its rows are still held. The acks, and what it published, are
    /// still to be written where the rows lie.
    pub(super) async fn settle(
        mut tx: Begun<Sqlite>,
        mut elsewhere: Elsewhere,
        publisher: &Publisher,
        acks: &[Handled<'_>],
    ) -> Result<Ended, StoreError> {
        if let Err(over) = goes_on(&mut tx).await {
            drop(roll_back(&mut tx).await);
            return Err(over);
        }
        if elsewhere.crashes() {
            roll_back(&mut tx).await.map_err(StoreError::of("roll back"))?;
            return Ok(Ended::Elsewhere(Vec::new()));
        }
        if acks.iter().any(|handled| !elsewhere.holds(handled.lease)) {
            roll_back(&mut tx).await.map_err(StoreError::of("roll back"))?;
            return Ok(Ended::LeaseLost);
        }
        let after = elsewhere.begun_after;
        let messages = take(&mut tx, publisher.names(), after, &mut elsewhere).await?;
        commit(&mut tx).await.map_err(StoreError::of("commit"))?;
        elsewhere.committed();
        Ok(Ended::Elsewhere(messages))
    }
}

/// Takes what was published behind a row out of its table.
async fn take(
    tx: &mut SqliteConnection,
    names: &TableNames,
    after: i64,
    elsewhere: &mut Elsewhere,
) -> Result<Vec<Prepared>, StoreError> {
    let rows = query(&sql!(names, "take")).bind(after).fetch_all(tx).await;
    let mut rows: Vec<Row> = rows
        .and_then(|rows| rows.iter().map(read).collect())
        .map_err(StoreError::of("take what was published"))?;
    rows.sort_by_key(|row| row.id);
    // The last first: if a timer was moved, the message is the one that moved it.
    let mut messages: Vec<_> = rows
        .into_iter()
        .rev()
        .map(|row| elsewhere.published(|it| is(&row, it)).unwrap_or_else(|| again(row)))
        .collect();
    messages.reverse();
    Ok(messages)
}

fn is(row: &Row, message: &Prepared) -> bool {
    row.headers.as_ref().is_some_and(|mine| mine.as_bytes() == message.headers.as_bytes())
        && (&row.queue, &row.payload) == (&message.queue, &message.payload)
        && row.timer_id == message.timer_id
}

/// Makes a message of a row about which nothing more is known.
fn again(row: Row) -> Prepared {
    let wait = row.next_attempt_at.duration_since(row.created_at).unwrap_or_default();
    Prepared {
        queue: row.queue,
        payload: row.payload,
        headers: row
            .headers
            .map_or_else(|| "{}".into(), |headers| String::from(Stored::into_text(headers))),
        due: if wait.is_zero() { Due::Now } else { Due::In(wait) },
        timer_id: row.timer_id,
        extend: false,
    }
}
