//! Transactions of operators.

use sqlx::postgres::PgRow;
use sqlx::{Executor, Postgres, Transaction};

use super::desk::PATIENCE;
use super::{PgDesk, Statement};
use crate::error::StoreError;
use crate::ops::begun::begun;
use crate::ops::failed::failed;

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY";

/// Nothing is waited for longer than somebody at a keyboard would: a table that is
/// locked for a change of it answers nobody.
///
/// The plans: each statement has one that is right for every table, its index read in
/// order. A planner that knows the table as it was when it was empty, or full, finds
/// others, and the user's session may.
const SETTINGS: &str = "SET LOCAL lock_timeout = '2s'; SET LOCAL jit = off;
    SET LOCAL plan_cache_mode = force_custom_plan; SET LOCAL enable_seqscan = off;
    SET LOCAL enable_bitmapscan = off; SET LOCAL enable_hashjoin = off;
    SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off;
    SET LOCAL enable_indexscan = on; SET LOCAL enable_indexonlyscan = on;
    SET LOCAL enable_nestloop = on; SET LOCAL max_parallel_workers_per_gather = 0";

impl PgDesk {
    /// A transaction that reads by index. It is left to be rolled back.
    pub(super) async fn reading(
        &self,
        action: &'static str,
    ) -> Result<Transaction<'static, Postgres>, StoreError> {
        let pool = self.pool().clone();
        let begin = async move { pool.begin_with(BEGIN).await };
        let mut tx = begun(action, begin).await?;
        tx.execute(SETTINGS).await.map_err(failed(action))?;
        Ok(tx)
    }

    /// Every row that a statement answers with, read by index.
    pub(super) async fn read<T>(
        &self,
        action: &'static str,
        statement: Statement,
        row: impl Fn(&PgRow) -> sqlx::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let mut tx = self.reading(action).await?;
        let rows = statement.fetch_all(&mut *tx).await.map_err(failed(action))?;
        rows.iter().map(row).collect::<Result<_, _>>().map_err(failed(action))
    }

    /// A transaction that may write.
    pub(crate) async fn writing(
        &self,
        action: &'static str,
    ) -> Result<Transaction<'static, Postgres>, StoreError> {
        let pool = self.pool().clone();
        let mut tx = begun(action, async move { pool.begin().await }).await?;
        tx.execute(PATIENCE).await.map_err(failed(action))?;
        Ok(tx)
    }
}
