//! Vacuums the table while it is busy. Autovacuum looks once a minute, unless the server is told
//! otherwise. By then a table that empties as fast as it is filled has grown by all the rows of a
//! minute, and its indexes with it.

use std::sync::Mutex;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Executor as _};
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::PgStore;
use crate::error::StoreError;
use crate::telemetry::{TARGET, debug};
use crate::unpoisoned::Locked as _;

/// How many claims make a vacuum worth while, in a table of no more than twice as many rows. Each
/// claim leaves an old version of its row, and sooner or later the row. Fewer claims are left to
/// autovacuum.
const CLAIMS: u64 = 25_000;
/// If a vacuum leaves more dead rows than these, somebody's snapshot keeps them. Fewer may have
/// died meanwhile.
const KEPT: u64 = 50_000;
/// How long to wait when there are enough claims, so that what ends soon has ended.
const REST: Duration = Duration::from_secs(2);

/// Whether this role may vacuum the table, and how many rows there are.
const TABLE: &str = "SELECT pg_has_role(relowner, 'USAGE'), greatest(reltuples, 0)::bigint,
        pg_stat_get_dead_tuples(oid)
    FROM pg_class WHERE oid = $1::regclass";

const VACUUM: &str = "VACUUM (SKIP_LOCKED, TRUNCATE false, PARALLEL 0) \"outbox\"";

/// Decides when to vacuum next.
pub(super) struct Vacuum(Mutex<State>);

struct State {
    claims: u64,
    /// How many claims there have to be from one vacuum to the next.
    enough: u64,
    /// Dead rows that the last vacuum could not clear away, because somebody holds a snapshot.
    /// Until autovacuum has cleared them, another vacuum would only cost time.
    left: Option<u64>,
    running: Option<AbortHandle>,
    /// This role may not vacuum, or the store is closed.
    over: bool,
}

struct Table {
    rows: u64,
    dead: u64,
}

impl Vacuum {
    pub(super) fn new() -> Self {
        let state = State { claims: 0, enough: CLAIMS, left: None, running: None, over: false };
        Self(Mutex::new(state))
    }

    /// Stops a vacuum that runs: nobody waits for it.
    pub(super) fn close(&self) {
        let mut state = self.0.locked();
        state.over = true;
        if let Some(running) = state.running.take() {
            running.abort();
        }
    }
}

impl PgStore {
    /// Counts claimed rows, and vacuums in the background once there are enough.
    pub(super) fn claimed(&self, rows: usize) {
        let mut state = self.0.vacuum.0.locked();
        state.claims += rows as u64;
        if state.claims >= state.enough && state.running.is_none() && !state.over {
            let store = self.clone();
            let task = tokio::spawn(async move {
                sleep(REST).await;
                store.vacuum().await;
            });
            state.running = Some(task.abort_handle());
        }
    }

    async fn vacuum(&self) {
        let done = self.vacuum_once().await;
        let mut state = self.0.vacuum.0.locked();
        (state.running, state.claims) = (None, 0);
        match done {
            Ok(true) => {}
            Ok(false) => state.over = true,
            Err(error) => {
                // Perhaps the role's `statement_timeout` leaves no time for it.
                state.enough = state.enough.saturating_mul(2);
                debug!(target: TARGET, %error, "the table was not vacuumed");
            }
        }
    }

    /// False when only other roles may vacuum.
    async fn vacuum_once(&self) -> Result<bool, StoreError> {
        let names = &self.0.names;
        let table = names.qualified(names.table());
        let Some(before) = self.found(&table).await? else { return Ok(false) };
        if self.0.vacuum.0.locked().left.is_some_and(|left| before.dead >= left) {
            return Ok(true);
        }
        // It never gets in the way of another vacuum, and takes no help from other processes. Rows
        // come back, so the file keeps its size: changing it would need a lock.
        let vacuum = sqlx::raw_sql(AssertSqlSafe(names.sql(VACUUM)));
        self.bounded("vacuum", |connection| Box::pin(connection.execute(vacuum))).await?;
        let Some(after) = self.found(&table).await? else { return Ok(false) };
        let mut state = self.0.vacuum.0.locked();
        state.enough = CLAIMS.max(after.rows / 2);
        state.left = (after.dead > state.enough.max(KEPT)).then_some(after.dead);
        Ok(true)
    }

    async fn found(&self, table: &str) -> Result<Option<Table>, StoreError> {
        let look = sqlx::query_as(TABLE).bind(table.to_owned());
        let found = self.bounded("vacuum", |connection| Box::pin(look.fetch_one(connection)));
        let (may, rows, dead): (bool, i64, i64) = found.await?;
        Ok(may.then_some(Table { rows: rows.unsigned_abs(), dead: dead.unsigned_abs() }))
    }
}
