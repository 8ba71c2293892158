//! The tables for operators: on the user's pool, one connection at
//! a time.

use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{Row as _, Sqlite, Transaction};

use super::connect::begin_writing;
use crate::error::StoreError;
use crate::message::row::from_micros;
use crate::store::answers::columns;
use crate::store::names::TableNames;

columns!(SqliteRow, from_micros);

/// What operators do, on SQLite. Each kind of work stands in a file of its own.
#[derive(Debug, Clone)]
pub(crate) struct SqliteDesk {
    pool: SqlitePool,
    pub(super) names: TableNames,
}

impl SqliteDesk {
    pub(crate) fn new(pool: SqlitePool, names: &TableNames) -> Self {
        Self { pool, names: names.clone() }
    }

    pub(crate) fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    /// A transaction that may write.
    ///
    /// # Cancel safety
    /// On a task of its own: sqlx leaves the session inside the transaction when a begin
    /// is cancelled.
    pub(super) async fn begin(
        &self,
        action: &'static str,
    ) -> Result<Transaction<'static, Sqlite>, StoreError> {
        let pool = self.pool.clone();
        let begun = tokio::spawn(async move { begin_writing(&pool).await }).await;
        let tx = begun.map_err(|error| StoreError::new(action, error, true))?;
        tx.map_err(StoreError::of(action))
    }
}
