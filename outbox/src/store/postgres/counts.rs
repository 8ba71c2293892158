//! Queues, what they hold, and the ids given out.

use std::time::{Duration, SystemTime};

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::time::PgTime;
use super::{PgDesk, query};
use crate::error::StoreError;
use crate::ops::failed::failed;
use crate::ops::{Counted, QueueInfo, QueueSample};
use crate::store::statements;

statements! {
    struct Sql in "sql" { queues, counts, given_out }
}

impl PgDesk {
    pub(crate) async fn queues(&self, limit: i64) -> Result<Vec<QueueInfo>, StoreError> {
        let failed = || failed("name the queues");
        let mut tx = self.reading("name the queues").await?;
        let statement = query(&Sql::new(&self.names).queues).bind(limit);
        let rows = statement.fetch_all(&mut *tx).await.map_err(failed())?;
        let info = |row: &PgRow| {
            let paused_at: Option<PgTime> = row.try_get(3)?;
            Ok(QueueInfo {
                queue: row.try_get(0)?,
                has_rows: row.try_get(1)?,
                has_dead_letters: row.try_get(2)?,
                paused_at: paused_at.map(|at| at.0),
                note: row.try_get(4)?,
            })
        };
        rows.iter().map(info).collect::<Result<_, _>>().map_err(failed())
    }

    pub(crate) async fn counts(
        &self,
        queues: &[String],
        limit: Option<i64>,
    ) -> Result<Vec<Counted>, StoreError> {
        let mut tx = self.reading("count").await?;
        let statement = query(&Sql::new(&self.names).counts).bind(queues.to_vec()).bind(limit);
        let rows = statement.fetch_all(&mut *tx).await.map_err(failed("count"))?;
        rows.iter().map(counted).collect::<Result<_, _>>().map_err(failed("count"))
    }

    /// The database's time and the last id that was given out, if it is known.
    pub(crate) async fn given_out(&self) -> Result<(SystemTime, Option<i64>), StoreError> {
        let table = self.names.qualified(self.names.table());
        let mut tx = self.reading("read the last id").await?;
        let statement = query(&Sql::new(&self.names).given_out).bind(table);
        let row = statement.fetch_one(&mut *tx).await;
        row.and_then(|row| Ok((row.try_get::<PgTime, _>(0)?.0, row.try_get(1)?)))
            .map_err(failed("read the last id"))
    }
}

fn counted(row: &PgRow) -> Result<Counted, sqlx::Error> {
    let count = |index| row.try_get::<i64, _>(index).map(|count| count.max(0).unsigned_abs());
    let oldest: Option<i64> = row.try_get(5)?;
    let sample = QueueSample {
        queue: row.try_get(0)?,
        waiting: count(1)?,
        due: count(2)?,
        leased: count(3)?,
        retrying: count(4)?,
        oldest: oldest.map(|us| Duration::from_micros(us.max(0).unsigned_abs())),
        bounded: false,
        dead_letters: count(6)?,
        dead_letters_bounded: false,
        paused_at: None,
    };
    Ok(Counted { sample, rows: count(7)? })
}
