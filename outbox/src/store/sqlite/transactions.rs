//! Transactions of operators.

use sqlx::{Sqlite, Transaction};

use super::SqliteDesk;
use crate::error::StoreError;
use crate::ops::begun::begun;

impl SqliteDesk {
    /// A transaction that may write.
    pub(crate) async fn writing(
        &self,
        action: &'static str,
    ) -> Result<Transaction<'static, Sqlite>, StoreError> {
        let pool = self.pool().clone();
        begun(action, async move { pool.begin_with("BEGIN IMMEDIATE").await }).await
    }
}
