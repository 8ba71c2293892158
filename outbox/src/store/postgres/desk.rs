//! The tables for operators: on the user's pool, at READ COMMITTED, one connection at
//! a time.

use std::time::SystemTime;

use sqlx::postgres::{PgPool, PgRow};
use sqlx::{Executor as _, PgTransaction, Row as _};

use super::time::PgTime;
use super::{Statement, once};
use crate::error::StoreError;
use crate::ops::begun::begun;
use crate::store::Result;
use crate::store::answers::columns;
use crate::store::desk::desk;

/// How long an operator waits for a lock, unless the pool has a shorter limit. And if the operator
/// has gone, the statement ends and its locks with it, where the server can watch its clients:
/// PostgreSQL 14 and newer, surely on Linux.
pub(super) const PATIENCE: &str = "SELECT set_config('lock_timeout', '5s', true) \
    WHERE current_setting('lock_timeout')::interval NOT BETWEEN '1ms' AND '5s';
    SELECT set_config('client_connection_check_interval', '2s', true) \
    WHERE current_setting('client_connection_check_interval', true) = '0' \
    AND version() LIKE '%linux%'";

/// Settings of a transaction that reads. Nothing is waited for longer than somebody at a keyboard
/// would wait: a table that is locked because it is being changed answers nobody.
///
/// Each statement has one plan that is right for every table: its index, read in order. A planner
/// that knows the table as it was when it was empty, or full, finds other plans, and so may the
/// user's session.
const READING: &str = "SET LOCAL lock_timeout = '2s'; SET LOCAL jit = off;
    SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL enable_seqscan = off;
    SET LOCAL enable_bitmapscan = off; SET LOCAL enable_hashjoin = off;
    SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off;
    SET LOCAL enable_indexscan = on; SET LOCAL enable_indexonlyscan = on;
    SET LOCAL enable_nestloop = on; SET LOCAL max_parallel_workers_per_gather = 0";
/// Begins a transaction that writes, whatever the isolation of the user's sessions is.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
/// Settings of a transaction that writes, for the same reasons.
const WRITING: &str = "SET LOCAL jit = off; SET LOCAL plan_cache_mode = force_custom_plan;
    SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off;
    SET LOCAL enable_mergejoin = off";

columns!(PgRow, |PgTime(time)| time, sqlx::Row::try_get_unchecked);

desk!(PgDesk, PgPool);

fn time(at: SystemTime) -> PgTime {
    PgTime(at)
}

fn ids(ids: &[i64]) -> Vec<i64> {
    ids.to_vec()
}

/// NULL stands for no limit.
fn most(limit: Option<i64>) -> Option<i64> {
    limit
}

impl PgDesk {
    /// A transaction that reads by index. It is left to be rolled back.
    pub(super) async fn reading(&self, action: &'static str) -> Result<PgTransaction<'static>> {
        self.set(action, "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY", &[READING]).await
    }

    /// Reads every row of a statement's answer, by index. The statement is unnamed: where the
    /// user's pool keeps no statements, a named one would stay on the server.
    pub(super) async fn read<T>(
        &self,
        action: &'static str,
        statement: Statement,
        row: impl Fn(&PgRow) -> sqlx::Result<T>,
    ) -> Result<Vec<T>> {
        let mut tx = self.reading(action).await?;
        let rows = statement.persistent(false).fetch_all(&mut *tx).await;
        rows.and_then(|rows| rows.iter().map(row).collect()).map_err(StoreError::of(action))
    }

    /// A transaction that may write, and sees what others have committed meanwhile.
    pub(crate) async fn writing(&self, action: &'static str) -> Result<PgTransaction<'static>> {
        self.set(action, BEGIN, &[PATIENCE]).await
    }

    /// A transaction that writes by index, whatever the isolation and the plans that the
    /// user's sessions have.
    pub(super) async fn begin(&self, action: &'static str) -> Result<PgTransaction<'static>> {
        self.set(action, BEGIN, &[PATIENCE, WRITING]).await
    }

    async fn set(
        &self,
        action: &'static str,
        begin: &'static str,
        settings: &[&'static str],
    ) -> Result<PgTransaction<'static>> {
        let pool = self.pool().clone();
        let mut tx = begun(action, async move { pool.begin_with(begin).await }).await?;
        for &setting in settings {
            tx.execute(setting).await.map_err(StoreError::of(action))?;
        }
        Ok(tx)
    }
}
