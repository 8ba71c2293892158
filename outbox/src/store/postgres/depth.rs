//! What is in the queues, for gauges.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use tokio::time::{Instant, sleep};

use super::{PgStore, query};
use crate::error::StoreError;
use crate::store::names::TableNames;
use crate::store::{Connections, Depth, Store as _};

const ACTION: &str = "look into the queues";
/// A look waits for a connection that has nothing to do, so that none is opened for it;
/// where all are busy all the time, it takes its turn after this long.
const PATIENCE: Duration = Duration::from_secs(5);

/// The statement, for tables with or without dead letters.
pub(super) fn sample_sql(names: &TableNames) -> Arc<str> {
    let kept = |line: &&str| names.dlq().is_some() || !line.contains("\"outbox_dlq\"");
    let text: String = include_str!("sql/depth.sql").split_inclusive('\n').filter(kept).collect();
    names.sql(&text)
}

impl PgStore {
    pub(super) async fn depths_of(
        &self,
        queues: &[String],
        most: usize,
    ) -> Result<Vec<Depth>, StoreError> {
        let give_up = Instant::now() + PATIENCE;
        while matches!(self.connections(), Connections { open: 1.., idle: 0, .. })
            && Instant::now() < give_up
        {
            sleep(Duration::from_millis(20)).await;
        }
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let statement = query(&self.0.sample).bind(queues.to_vec()).bind(most);
        let look = self.bounded(ACTION, |connection| Box::pin(statement.fetch_all(connection)));
        let rows = look.await?;
        let dead_letters = self.0.names.dlq().is_some();
        let depths: Result<_, _> = rows.iter().map(|row| depth(row, dead_letters)).collect();
        depths.map_err(StoreError::of(ACTION))
    }
}

fn depth(row: &PgRow, dead_letters: bool) -> Result<Depth, sqlx::Error> {
    Ok(Depth {
        queue: row.try_get(0)?,
        backlog: count(row, 1)?,
        due: count(row, 2)?,
        leased: count(row, 3)?,
        oldest_age: Duration::try_from_secs_f64(row.try_get(4)?).unwrap_or_default(),
        dead_letters: dead_letters.then(|| count(row, 5)).transpose()?,
    })
}

fn count(row: &PgRow, at: usize) -> Result<usize, sqlx::Error> {
    row.try_get::<i64, _>(at).map(|count| usize::try_from(count).unwrap_or_default())
}
