//! The tables for operators: on the user's pool, at READ COMMITTED, one connection at
//! a time.

use sqlx::postgres::{PgPool, PgRow};
use sqlx::{Executor as _, Postgres, Row as _, Transaction};

use super::time::PgTime;
use crate::error::StoreError;
use crate::store::answers::columns;
use crate::store::names::TableNames;

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
/// As in transactions.rs.
const PLANS: &str = "SET LOCAL jit = off; SET LOCAL plan_cache_mode = force_custom_plan;
    SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off;
    SET LOCAL enable_mergejoin = off";

/// An operator waits no longer for a lock, unless the pool says sooner.
pub(super) const PATIENCE: &str = "SELECT set_config('lock_timeout', '5s', true) \
    WHERE current_setting('lock_timeout')::interval NOT BETWEEN '1ms' AND '5s'";

columns!(PgRow, |PgTime(time)| time);

/// What operators do, on PostgreSQL. Each kind of work stands in a file of its own.
#[derive(Debug, Clone)]
pub(crate) struct PgDesk {
    pool: PgPool,
    pub(super) names: TableNames,
}

impl PgDesk {
    pub(crate) fn new(pool: PgPool, names: &TableNames) -> Self {
        Self { pool, names: names.clone() }
    }

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// A transaction for writes by index, whatever the isolation and the plans that the
    /// user's sessions have.
    ///
    /// # Cancel safety
    /// On a task of its own: sqlx leaves the session inside the transaction when a begin
    /// is cancelled.
    pub(super) async fn begin(
        &self,
        action: &'static str,
    ) -> Result<Transaction<'static, Postgres>, StoreError> {
        let pool = self.pool.clone();
        let begun = tokio::spawn(async move { pool.begin_with(BEGIN).await }).await;
        let tx = begun.map_err(|error| StoreError::new(action, error, true))?;
        let mut tx = tx.map_err(StoreError::of(action))?;
        tx.execute(PATIENCE).await.map_err(StoreError::of(action))?;
        tx.execute(PLANS).await.map_err(StoreError::of(action))?;
        Ok(tx)
    }
}
