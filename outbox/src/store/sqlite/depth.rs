//! What is in the queues, for gauges. The sampler asks for this at an interval, on the connection
//! that reads, so no writer waits for it.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::{SqliteStore, query};
use crate::error::StoreError;
use crate::store::Depth;

impl SqliteStore {
    pub(super) async fn depths_of(
        &self,
        queues: &[String],
        most: usize,
    ) -> Result<Vec<Depth>, StoreError> {
        let mut depths = Vec::with_capacity(queues.len());
        for queue in queues {
            let row = self.sampled(&self.0.sql.depth, queue, most).await?;
            let mut depth = Depth {
                queue: queue.clone(),
                backlog: count(&row, 0)?,
                due: count(&row, 1)?,
                leased: count(&row, 2)?,
                oldest_age: Duration::from_micros(count(&row, 3)? as u64),
                dead_letters: None,
                notify_usage: None,
            };
            // Where the dead-letter table cannot be read, the other counts are read all the same.
            if self.0.names.dlq().is_some()
                && let Ok(row) = self.sampled(&self.0.sql.depth_dlq, queue, most).await
            {
                depth.dead_letters = Some(count(&row, 0)?);
            }
            depths.push(depth);
        }
        Ok(depths)
    }

    async fn sampled(
        &self,
        sql: &Arc<str>,
        queue: &str,
        most: usize,
    ) -> Result<SqliteRow, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let statement = query(sql).bind(queue.to_owned()).bind(most);
        statement.fetch_one(&self.0.reader).await.map_err(StoreError::of(ACTION))
    }
}

const ACTION: &str = "look into the queues";

fn count(row: &SqliteRow, at: usize) -> Result<usize, StoreError> {
    let count: i64 = row.try_get(at).map_err(StoreError::of(ACTION))?;
    Ok(usize::try_from(count).unwrap_or_default())
}
