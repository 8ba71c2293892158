//! One statement for a whole batch.
//!
//! A write is quick when it names one row: SQLite looks `id = ?1` up by the primary key, whatever
//! it believes about the table. For a list of ids it reads the whole table if ANALYZE once saw it
//! nearly empty. So every write is written for one row, and a trigger runs it for each element of
//! an array. That happens inside SQLite: a statement for each row would wait for the connection's
//! thread, which takes longer than the write.
//!
//! Most batches are a few runs of rows whose ids follow each other. For those there is a second
//! trigger, which writes to a range of ids at once, in half the time. But in a table that SQLite
//! believes to have one row or two, it would read all rows for a range. So its plan is asked for
//! first.
//!
//! The views, the triggers and the list of lost rows are temporary: no other connection sees them.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde::Serialize;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Executor as _, Row as _};

use super::desk::text;
use super::query;
use super::runs::{LONGEST, Runs};
use crate::error::StoreError;
use crate::store::Lease;
use crate::store::names::TableNames;
use crate::store::template::quoted;
use crate::unpoisoned::Locked as _;

const TAKE: &str = include_str!("sql/claim_take.sql");
const ACK: &str = include_str!("sql/ack.sql");
const RETRY: &str = include_str!("sql/retry.sql");
const BURY: &str = include_str!("sql/bury.sql");
pub(super) const BURIED: &str = include_str!("sql/bury_check.sql");
pub(super) const GONE: &str = include_str!("sql/bury_gone.sql");
const RELEASE: &str = include_str!("sql/release.sql");
const EXTEND: &str = include_str!("sql/extend.sql");
#[cfg(test)]
pub(super) const WRITES: [&str; 6] = [TAKE, ACK, RETRY, BURY, RELEASE, EXTEND];

/// The values that are written for a run, if there are several: the elements of ?1 are arrays then.
const A: &str = "given.value ->> 0";
const B: &str = "given.value ->> 1";
const C: &str = "given.value ->> 2";
const D: &str = "given.value ->> 3";
const E: &str = "given.value ->> 4";
/// A run: its first id, its token, and how many rows follow the first. [`Runs::names`] writes one
/// run after the other into the BLOB ?2.
const ID: &str = "CAST(substr(?2, given.key * 40 + 17, 20) AS INTEGER)";
const TOKEN: &str = "substr(?2, given.key * 40 + 1, 16)";
const MORE: &str = "CAST(substr(?2, given.key * 40 + 37, 4) AS INTEGER)";
/// How a write names its row, and how it names the rows of a run.
pub(super) const ROW: &str = "id = ?1";
pub(super) const RANGE: &str = "id BETWEEN ?1 AND ?1 + :more";
/// How many rows ranges have to save before asking for them is worth it.
const WORTH: usize = 30;

/// A statement over ?1, a JSON array with one element for each run, and ?2.
pub(super) struct Batch {
    /// For runs that are one row each.
    rows: Arc<str>,
    ranges: Arc<str>,
    failed: AtomicBool,
}

pub(super) struct Batches {
    /// What a connection runs first.
    pub(super) prepare: String,
    /// Asks how SQLite would find a range.
    plan: Arc<str>,
    /// The answer, and the version of the schema that it is for. Only one connection writes.
    searched: Mutex<Option<(i64, bool)>>,
    /// Makes SQLite look whether a table is back: a trigger that names the table does not. It is no
    /// part of the statements below. When one of those fails, sqlx resets the first statement
    /// before it, finds no error any more, panics, and leaves the file locked.
    look: Arc<str>,
    pub(super) take: Batch,
    pub(super) ack: Batch,
    pub(super) retry: Batch,
    pub(super) bury: Batch,
    pub(super) release: Batch,
    pub(super) extend: Batch,
}

impl Batches {
    pub(super) fn new(names: &TableNames) -> Self {
        // No table has such a name, because it contains the names of both tables.
        let own = format!("{}/{}/", names.table(), names.dlq_or_default());
        let lost = quoted(&format!("{own}lost"));
        let mut prepare = format!("CREATE TEMP TABLE {lost} (place INTEGER);");
        // The parameter ?n of a write is value number n. A write that is in one transaction with
        // its search hits all of its rows, and has nothing to report.
        let mut made = |kind: &str, values: &[&str], writes: &[&str], tells: bool| {
            let view = quoted(&format!("{own}{kind}"));
            let (mut columns, mut body) = (String::from("0 AS place, 0 AS more"), writes.join(";"));
            body = body.replace(":more", "NEW.more");
            for number in 1..=values.len() {
                let _ = write!(columns, ", 0 AS a{number}");
                body = body.replace(&format!("?{number}"), &format!("NEW.a{number}"));
            }
            let values = values.join(", ");
            let from = "FROM json_each(?1) AS given";
            let mut sql = format!("INSERT INTO {view} SELECT given.key, {MORE}, {values} {from}");
            let mut body = names.sql(&body).to_string();
            if tells {
                let hit = "changes() = NEW.more + 1";
                let _ = write!(body, "; INSERT INTO {lost} SELECT NEW.place WHERE NOT {hit}");
                let _ = write!(sql, "; DELETE FROM {lost} RETURNING place");
            }
            let _ = write!(
                prepare,
                "CREATE TEMP VIEW {view} AS SELECT {columns};
                 CREATE TEMP TRIGGER {view} INSTEAD OF INSERT ON {view} BEGIN
                 {body};
                 END;"
            );
            Arc::from(sql)
        };
        let mut batch = |kind: &str, values: &[&str], writes: &[&str], tells: bool| {
            let ranges: Vec<_> = writes.iter().map(|write| write.replace(ROW, RANGE)).collect();
            let ranges: Vec<_> = ranges.iter().map(String::as_str).collect();
            let values = &[&[ID, TOKEN], values].concat();
            Batch {
                rows: made(kind, values, writes, tells),
                ranges: made(&format!("{kind} ranges"), values, &ranges, tells),
                failed: AtomicBool::new(false),
            }
        };
        Self {
            take: batch("take", &["?3"], &[TAKE], false),
            ack: batch("ack", &[], &[ACK], true),
            retry: batch("retry", &["given.value"], &[RETRY], true),
            bury: batch("bury", &[A, B, C, D, E], &[BURY, BURIED, ACK, GONE], true),
            release: batch("release", &[A, B, C], &[RELEASE], true),
            extend: batch("extend", &["unhex(given.value)"], &[EXTEND], true),
            plan: explained(&names.sql(&ACK.replace(ROW, RANGE))),
            searched: Mutex::default(),
            look: names.sql("SELECT 0 FROM \"outbox\" WHERE 0"),
            prepare,
        }
    }

    /// Divides the rows of a batch into runs: single rows, or ranges if `ranges` allows them and
    /// they are worth it.
    pub(super) async fn runs<'a, T: Serialize + PartialEq>(
        &self,
        action: &'static str,
        connection: &mut SqliteConnection,
        rows: &'a [(Lease, T)],
        ranges: bool,
    ) -> Result<Runs<'a, T>, StoreError> {
        let runs = Runs::of(rows, LONGEST);
        if ranges && runs.saved() >= WORTH {
            let searched = self.searches(connection).await.map_err(StoreError::of(action))?;
            if searched {
                return Ok(runs);
            }
        }
        Ok(Runs::of(rows, 1))
    }

    /// Whether SQLite would look up the rows of a range, on this connection.
    async fn searches(&self, connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
        // SQLite reads what ANALYZE saw with the schema, and only then.
        let schema = sqlx::query_scalar("PRAGMA schema_version");
        let schema: i64 = schema.fetch_one(&mut *connection).await?;
        let known = *self.searched.locked();
        if let Some((_, searched)) = known.filter(|(of, _)| *of == schema) {
            return Ok(searched);
        }
        // A schema that another connection has changed is read when a statement runs, as the
        // statements of a trigger do.
        query(&self.look).fetch_all(&mut *connection).await?;
        let searched = searches(connection, &self.plan).await?;
        *self.searched.locked() = Some((schema, searched));
        Ok(searched)
    }

    /// Runs a statement for all rows. Returns the runs of which it did not hit every row.
    pub(super) async fn run<T: Serialize + PartialEq>(
        &self,
        batch: &Batch,
        action: &'static str,
        connection: &mut SqliteConnection,
        runs: &Runs<'_, T>,
    ) -> Result<Vec<usize>, StoreError> {
        let run = query(batch.sql(runs)).bind(runs.heads()).bind(runs.names());
        // Set until it is known that the statement went well: this call may be dropped.
        if batch.failed.swap(true, Ordering::Relaxed) {
            let look = query(&self.look).fetch_all(&mut *connection).await;
            look.map_err(StoreError::of(action))?;
        }
        let lost = run.fetch_all(connection).await.map_err(StoreError::of(action))?;
        batch.failed.store(false, Ordering::Relaxed);
        let lost = lost.iter().map(|lost| lost.try_get::<i64, _>(0));
        let lost = lost.collect::<Result<Vec<_>, _>>().map_err(StoreError::of(action))?;
        Ok(lost.into_iter().map(|run| usize::try_from(run).unwrap_or(usize::MAX)).collect())
    }
}

impl Batch {
    /// The statement for these runs.
    pub(super) fn sql<T: Serialize + PartialEq>(&self, runs: &Runs<'_, T>) -> &Arc<str> {
        if runs.saved() == 0 { &self.rows } else { &self.ranges }
    }
}

/// A statement's question for [`searches`].
pub(super) fn explained(text: &str) -> Arc<str> {
    format!("EXPLAIN QUERY PLAN {text}").into()
}

/// Whether SQLite looks up the first row that a statement has to find, by what this connection
/// knows about the table. Otherwise it reads the table from the start up to that row.
pub(super) async fn searches(
    connection: &mut SqliteConnection,
    plan: &Arc<str>,
) -> Result<bool, sqlx::Error> {
    // A plan that was kept would be reported again as it was.
    let step = query(plan).persistent(false).fetch_one(connection).await?;
    // The plan may contain the name of somebody else's index, in another encoding.
    Ok(text(&step, 3)?.starts_with("SEARCH"))
}

/// Makes the views and triggers of a connection.
pub(super) async fn prepare(
    connection: &mut SqliteConnection,
    batches: &Batches,
) -> Result<(), sqlx::Error> {
    *batches.searched.locked() = None;
    connection.execute(AssertSqlSafe(batches.prepare.clone())).await.map(drop)
}
