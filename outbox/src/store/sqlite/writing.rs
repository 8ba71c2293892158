//! Writing for operators.

use sqlx::{Sqlite, Transaction};

use super::SqliteDesk;
use crate::error::StoreError;
use crate::ops::failed::failed;

impl SqliteDesk {
    /// A transaction that may write.
    pub(super) async fn writing(
        &self,
        action: &'static str,
    ) -> Result<Transaction<'static, Sqlite>, StoreError> {
        self.pool().begin_with("BEGIN IMMEDIATE").await.map_err(failed(action))
    }
}
