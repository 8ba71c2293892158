//! The tables for operators: on the user's pool, one connection at a time.

use std::time::SystemTime;

use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{Row as _, SqliteTransaction};

use super::claim::json;
use super::connect::begin_writing;
use super::query as once;
use super::settle::Statement;
use crate::error::StoreError;
use crate::message::row::{from_micros, to_micros};
use crate::ops::begun::begun;
use crate::store::Result;
use crate::store::answers::columns;
use crate::store::desk::desk;

columns!(SqliteRow, from_micros, text);

/// A text that another writer left may be a number, or no UTF-8, which SQLite does not check.
pub(super) fn text(row: &SqliteRow, at: usize) -> sqlx::Result<String> {
    let bytes: &[u8] = row.try_get_unchecked(at)?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

desk!(SqliteDesk, SqlitePool);

fn time(at: SystemTime) -> i64 {
    to_micros(at)
}

/// An array in JSON.
fn ids(ids: &[i64]) -> String {
    json(&ids)
}

/// A negative number stands for no limit.
pub(super) fn most(limit: Option<i64>) -> i64 {
    limit.unwrap_or(-1)
}

impl SqliteDesk {
    /// Reads every row of a statement's answer.
    pub(super) async fn read<T>(
        &self,
        action: &'static str,
        statement: Statement,
        row: impl Fn(&SqliteRow) -> sqlx::Result<T>,
    ) -> Result<Vec<T>> {
        let rows = statement.fetch_all(self.pool()).await;
        rows.and_then(|rows| rows.iter().map(row).collect()).map_err(StoreError::of(action))
    }

    /// A transaction that may write.
    pub(crate) async fn writing(&self, action: &'static str) -> Result<SqliteTransaction<'static>> {
        let pool = self.pool().clone();
        begun(action, async move { begin_writing(&pool).await }).await
    }

    /// The same: here writes go by index in any case.
    async fn begin(&self, action: &'static str) -> Result<SqliteTransaction<'static>> {
        self.writing(action).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::names::TableNames;

    #[tokio::test]
    async fn a_measurement_that_cannot_clean_up_says_that() {
        let pool = SqlitePool::connect_lazy("sqlite::memory:").unwrap();
        pool.close().await;
        let desk = SqliteDesk::new(pool, &TableNames::default());
        let failed = desk.clean_load("bench", 1).await.unwrap_err();
        assert!(failed.to_string().starts_with("clean up: "), "{failed}");
    }
}
