//! Reading rows for eyes; timers.

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::claim::read;
use super::{SqliteDesk, query};
use crate::error::StoreError;
use crate::message::row::from_micros;
use crate::ops::failed::failed;
use crate::ops::{CancelledTimer, Peeked};
use crate::store::statements;

statements! {
    struct Sql in "sql" { peek, cancel_timer, timer_row }
}

impl SqliteDesk {
    pub(crate) async fn peek(
        &self,
        queue: &str,
        rows: i64,
        bytes: i64,
    ) -> Result<Vec<Peeked>, StoreError> {
        let statement = query(&Sql::new(&self.names).peek);
        let statement = statement.bind(queue.to_owned()).bind(rows).bind(bytes);
        let peeked = |row: &SqliteRow| {
            let size: i64 = row.try_get(13)?;
            let seen_at = from_micros(row.try_get(14)?);
            Ok(Peeked::of(read(row)?, size.max(0).unsigned_abs(), seen_at))
        };
        self.read("peek", statement, peeked).await
    }

    /// Whether a row has this timer's name.
    pub(crate) async fn has_timer(&self, queue: &str, timer_id: &str) -> Result<bool, StoreError> {
        let row = query(&Sql::new(&self.names).timer_row);
        let row = row.bind(queue.to_owned()).bind(timer_id.to_owned());
        Ok(!self.read("look for a timer", row, |_| Ok(())).await?.is_empty())
    }

    pub(crate) async fn cancel_timer(
        &self,
        queue: &str,
        timer_id: &str,
    ) -> Result<CancelledTimer, StoreError> {
        let failed = || failed("cancel a timer");
        let sql = Sql::new(&self.names);
        let mut tx = self.writing("cancel a timer").await?;
        let bound = |text| query(text).bind(queue.to_owned()).bind(timer_id.to_owned());
        let deleted = bound(&sql.cancel_timer).execute(&mut *tx).await.map_err(failed())?;
        if deleted.rows_affected() > 0 {
            tx.commit().await.map_err(failed())?;
            return Ok(CancelledTimer::Cancelled);
        }
        let row = bound(&sql.timer_row).fetch_optional(&mut *tx).await.map_err(failed())?;
        Ok(row.map_or(CancelledTimer::Absent, |row| CancelledTimer::Leased { id: row.get(0) }))
    }
}
