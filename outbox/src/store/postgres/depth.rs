//! What is in the queues, for gauges. The sampler asks for this at an interval, so it waits for a
//! connection that has nothing to do before it opens another.

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
/// How long a look waits for an idle connection, so that none is opened for it. Where all are busy
/// all the time, it then takes its turn.
const PATIENCE: Duration = Duration::from_secs(5);

/// The statement with dead letters, if they are kept; and the one without.
pub(super) fn sample_sql(names: &TableNames) -> (Option<Arc<str>>, Arc<str>) {
    let text = include_str!("sql/depth.sql");
    let kept = |line: &&str| !line.contains("\"outbox_dlq\"");
    let without: String = text.split_inclusive('\n').filter(kept).collect();
    (names.dlq().map(|_| names.sql(text)), names.sql(&without))
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
        let (with, without) = &self.0.sample;
        if let Some(with) = with
            && let Ok(rows) = self.sampled(with, queues, most).await
        {
            return rows.iter().map(|row| depth(row, true)).collect();
        }
        // Where the dead-letter table cannot be read, the other counts are read all the same.
        let rows = self.sampled(without, queues, most).await?;
        rows.iter().map(|row| depth(row, false)).collect()
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

fn depth(row: &PgRow, dead_letters: bool) -> Result<Depth, StoreError> {
    let read = || {
        Ok(Depth {
            queue: row.try_get(0)?,
            backlog: count(row, 1)?,
            due: count(row, 2)?,
            leased: count(row, 3)?,
            oldest_age: Duration::try_from_secs_f64(row.try_get(4)?).unwrap_or_default(),
            notify_usage: row.try_get(5)?,
            dead_letters: dead_letters.then(|| count(row, 6)).transpose()?,
        })
    };
    read().map_err(StoreError::of(ACTION))
}

fn count(row: &PgRow, at: usize) -> Result<usize, sqlx::Error> {
    row.try_get::<i64, _>(at).map(|count| usize::try_from(count).unwrap_or_default())
}
