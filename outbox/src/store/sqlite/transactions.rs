//! Transactions of operators.

use sqlx::sqlite::SqliteRow;
use sqlx::{Sqlite, Transaction};

use super::SqliteDesk;
use super::connect::begin_writing;
use super::settle::Statement;
use crate::error::StoreError;
use crate::ops::begun::begun;
use crate::ops::failed::failed;

impl SqliteDesk {
    /// Every row that a statement answers with.
    pub(super) async fn read<T>(
        &self,
        action: &'static str,
        statement: Statement,
        row: impl Fn(&SqliteRow) -> sqlx::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let rows = statement.fetch_all(self.pool()).await.map_err(failed(action))?;
        rows.iter().map(row).collect::<Result<_, _>>().map_err(failed(action))
    }

    /// A transaction that may write.
    pub(crate) async fn writing(
        &self,
        action: &'static str,
    ) -> Result<Transaction<'static, Sqlite>, StoreError> {
        let pool = self.pool().clone();
        begun(action, async move { begin_writing(&pool).await }).await
    }
}
