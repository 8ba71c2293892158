//! One statement for a whole batch.
//!
//! A write is quick when it names one row: SQLite looks `id = ?1` up by the primary
//! key whatever it believes of the table. With a list of ids it reads the whole table
//! if ANALYZE once saw it nearly empty. So every write is written for one row, and a
//! trigger runs it for each element of an array: inside SQLite, because a statement
//! of its own waits for the connection's thread, which takes longer than the write.
//!
//! View, trigger and list are temporary: no other connection sees them.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Executor as _, Row as _};

use super::query;
use crate::error::StoreError;
use crate::store::names::TableNames;
use crate::store::template::quoted;
use crate::store::{Landed, Lease};

const TAKE: &str = include_str!("sql/claim_take.sql");
const ACK: &str = include_str!("sql/ack.sql");
const RETRY: &str = include_str!("sql/retry.sql");
const BURY: &str = include_str!("sql/bury.sql");
const RELEASE: &str = include_str!("sql/release.sql");
const EXTEND: &str = include_str!("sql/extend.sql");

/// The row's id where the elements of ?1 are arrays.
const ID: &str = "given.value ->> 0";
const A: &str = "given.value ->> 1";
const B: &str = "given.value ->> 2";
const C: &str = "given.value ->> 3";
const D: &str = "given.value ->> 4";
const E: &str = "given.value ->> 5";
/// The row's token: they lie one after the other in the BLOB ?2.
const TOKEN: &str = "substr(?2, given.key * 16 + 1, 16)";

/// A statement over ?1, a JSON array with an element a row, and ?2.
pub(super) struct Batch {
    pub(super) sql: Arc<str>,
    /// Makes SQLite look whether a table is back: a trigger that names it does not. Not
    /// part of `sql`, of which sqlx resets the first statement before the one that failed,
    /// finds no error any more, panics, and leaves the file locked.
    look: Arc<str>,
    failed: AtomicBool,
}

pub(super) struct Batches {
    /// What a connection runs first.
    pub(super) prepare: String,
    pub(super) take: Batch,
    pub(super) ack: Batch,
    pub(super) retry: Batch,
    pub(super) bury: Batch,
    pub(super) release: Batch,
    pub(super) extend: Batch,
}

impl Batches {
    pub(super) fn new(names: &TableNames) -> Self {
        // No table has such a name: it holds the names of both.
        let own = format!("{}/{}/", names.table(), names.dlq_or_default());
        let lost = quoted(&format!("{own}lost"));
        let mut prepare = format!("CREATE TEMP TABLE {lost} (place INTEGER);");
        // The parameter ?n of a write is the value number n. What is written inside one
        // transaction with its search hits all of its rows, and has nothing to tell.
        let mut batch = |kind: &str, values: &[&str], writes: &[&str], tells: bool| {
            let view = quoted(&format!("{own}{kind}"));
            let (mut columns, mut body) = (String::from("0 AS place"), writes.join(";"));
            for number in 1..=values.len() {
                let _ = write!(columns, ", 0 AS a{number}");
                body = body.replace(&format!("?{number}"), &format!("NEW.a{number}"));
            }
            let values = values.join(", ");
            let from = "FROM json_each(?1) AS given";
            let mut sql = format!("INSERT INTO {view} SELECT given.key, {values} {from}");
            let mut body = names.sql(&body).to_string();
            if tells {
                let _ = write!(body, "; INSERT INTO {lost} SELECT NEW.place WHERE changes() = 0");
                let _ = write!(sql, "; DELETE FROM {lost} RETURNING place");
            }
            let _ = write!(
                prepare,
                "CREATE TEMP VIEW {view} AS SELECT {columns};
                 CREATE TEMP TRIGGER {view} INSTEAD OF INSERT ON {view} BEGIN
                 {body};
                 END;"
            );
            let look = names.sql("SELECT 0 FROM \"outbox\" WHERE 0");
            Batch { sql: sql.into(), look, failed: AtomicBool::new(false) }
        };
        Self {
            take: batch("take", &["given.value", "?2", "?3"], &[TAKE], false),
            ack: batch("ack", &["given.value", TOKEN], &[ACK], true),
            retry: batch("retry", &[ID, TOKEN, A], &[RETRY], true),
            bury: batch("bury", &[ID, TOKEN, A, B, C, D, E], &[BURY, ACK], true),
            release: batch("release", &[ID, TOKEN, A, B, C], &[RELEASE], true),
            extend: batch("extend", &[ID, TOKEN, "unhex(given.value ->> 1)"], &[EXTEND], true),
            prepare,
        }
    }
}

impl Batch {
    /// Runs it for all rows. Those that it did not hit are `false`.
    pub(super) async fn run(
        &self,
        action: &'static str,
        connection: &mut SqliteConnection,
        rows: String,
        leases: impl ExactSizeIterator<Item = Lease>,
    ) -> Result<Landed, StoreError> {
        let mut landed = vec![true; leases.len()];
        let tokens: Vec<u8> = leases.flat_map(|lease| lease.token.into_bytes()).collect();
        let run = query(&self.sql).bind(rows).bind(tokens);
        // Until it is known that it went well: this call may be dropped.
        if self.failed.swap(true, Ordering::Relaxed) {
            let look = query(&self.look).fetch_all(&mut *connection).await;
            look.map_err(StoreError::of(action))?;
        }
        let lost = run.fetch_all(connection).await.map_err(StoreError::of(action))?;
        self.failed.store(false, Ordering::Relaxed);
        for lost in lost {
            let place: i64 = lost.try_get(0).map_err(StoreError::of(action))?;
            if let Some(one) = usize::try_from(place).ok().and_then(|at| landed.get_mut(at)) {
                *one = false;
            }
        }
        Ok(landed)
    }
}

/// Makes the views of a connection.
pub(super) async fn prepare(
    connection: &mut SqliteConnection,
    batches: &Batches,
) -> Result<(), sqlx::Error> {
    connection.execute(AssertSqlSafe(batches.prepare.clone())).await.map(drop)
}
