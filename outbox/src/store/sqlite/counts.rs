//! What queues hold, and which ids have been given out: for statistics, and to tell why a row is
//! where it is.

use std::time::SystemTime;

use sqlx::Row as _;

use super::desk::most;
use super::validate::counts_up;
use super::{SqliteDesk, query};
use crate::error::StoreError;
use crate::message::row::from_micros;
use crate::ops::Counted;
use crate::ops::begun::begun;
use crate::store::answers::{Columns, counted};
use crate::store::sql;

impl SqliteDesk {
    pub(crate) async fn counts(
        &self,
        queues: &[String],
        limit: Option<i64>,
    ) -> Result<Vec<Counted>, StoreError> {
        let text = sql!(self.names, "counts");
        // One picture of all queues.
        let pool = self.pool().clone();
        let mut tx = begun("count", async move { pool.begin().await }).await?;
        let mut counts = Vec::with_capacity(queues.len());
        for queue in queues {
            let statement = query(&text).bind(queue.clone()).bind(most(limit));
            let row = statement.fetch_one(&mut *tx).await;
            counts.push(row.and_then(|row| counted(&row)).map_err(StoreError::of("count"))?);
        }
        Ok(counts)
    }

    /// The database's time and the last id that was given out, if that is known. A table without
    /// AUTOINCREMENT does not keep it, and gives the ids of rows that are gone out again.
    pub(crate) async fn given_out(&self) -> Result<(SystemTime, Option<i64>), StoreError> {
        let failed = StoreError::of("read the last id");
        let asked = query(&sql!(self.names, "counts_up")).bind(self.names.table().to_owned());
        let row = asked.fetch_one(self.pool()).await.map_err(&failed)?;
        let made = row.maybe(1, Columns::text).map_err(&failed)?;
        if !counts_up(&made.unwrap_or_default()) {
            return Ok((from_micros(row.try_get(0).map_err(&failed)?), None));
        }
        let statement = query(&sql!(self.names, "given_out")).bind(self.names.table().to_owned());
        let row = statement.fetch_one(self.pool()).await;
        row.and_then(|row| {
            let last: Option<i64> = row.try_get(1)?;
            Ok((from_micros(row.try_get(0)?), Some(last.unwrap_or(0))))
        })
        .map_err(&failed)
    }
}
