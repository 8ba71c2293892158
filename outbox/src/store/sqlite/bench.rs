//! What a measurement writes and deletes.

use super::desk::SqliteDesk;
use super::query;
use crate::error::{Result, StoreError};
use crate::store::statements;

statements! {
    struct Sql in "sql" { bench_clean }
}

impl SqliteDesk {
    /// How many rows of the queue it deleted.
    pub(crate) async fn clean_load(&self, queue: &str, rows: i64) -> Result<u64> {
        let failed = StoreError::of("clean up");
        let mut tx = self.writing("measure").await?;
        let statement = query(&Sql::new(&self.names).bench_clean).bind(queue.to_owned()).bind(rows);
        let deleted = statement.execute(&mut *tx).await.map_err(&failed)?;
        tx.commit().await.map_err(failed)?;
        Ok(deleted.rows_affected())
    }
}
