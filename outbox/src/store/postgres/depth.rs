//! What is in the queues, for gauges.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::{PgStore, query};
use crate::error::StoreError;
use crate::store::Depth;

impl PgStore {
    pub(super) async fn depths_of(
        &self,
        queues: &[String],
        most: usize,
    ) -> Result<Vec<Depth>, StoreError> {
        let rows = self.sampled(&self.0.sql().depth, queues, most).await?;
        let mut letters = None;
        if self.0.names.dlq().is_some() {
            let rows = self.sampled(&self.0.sql().depth_dlq, queues, most).await?;
            let counts = rows.iter().map(|row| Ok((row.try_get::<String, _>(0)?, count(row, 1)?)));
            letters = Some(counts.collect::<Result<HashMap<_, _>, _>>().map_err(failed())?);
        }
        let depth = |row: &PgRow| {
            let queue: String = row.try_get(0)?;
            let age = Duration::try_from_secs_f64(row.try_get(4)?).unwrap_or_default();
            let dead_letters = letters.as_ref().and_then(|all| all.get(&queue).copied());
            let (backlog, due, leased) = (count(row, 1)?, count(row, 2)?, count(row, 3)?);
            Ok(Depth { queue, backlog, due, leased, oldest_age: age, dead_letters })
        };
        rows.iter().map(depth).collect::<Result<_, _>>().map_err(failed())
    }

    async fn sampled(
        &self,
        sql: &Arc<str>,
        queues: &[String],
        most: usize,
    ) -> Result<Vec<PgRow>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let statement = query(sql).bind(queues.to_vec()).bind(most);
        self.bounded(ACTION, |connection| Box::pin(statement.fetch_all(connection))).await
    }
}

const ACTION: &str = "look into the queues";

fn failed() -> impl Fn(sqlx::Error) -> StoreError {
    StoreError::of(ACTION)
}

fn count(row: &PgRow, at: usize) -> Result<usize, sqlx::Error> {
    row.try_get::<i64, _>(at).map(|count| usize::try_from(count).unwrap_or_default())
}
