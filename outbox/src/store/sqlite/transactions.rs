//! Transactions of operators.

use sqlx::{Sqlite, Transaction};

use super::SqliteDesk;
use super::connect::begin_writing;
use crate::error::StoreError;
use crate::ops::begun::begun;

impl SqliteDesk {
    /// A transaction that may write.
    pub(crate) async fn writing(
        &self,
        action: &'static str,
    ) -> Result<Transaction<'static, Sqlite>, StoreError> {
        let pool = self.pool().clone();
        begun(action, async move { begin_writing(&pool).await }).await
    }
}
