//! What queues hold, and which ids have been given out: for statistics, and to tell why a row is
//! where it is.

use std::time::SystemTime;

use sqlx::Row as _;

use super::time::PgTime;
use super::{PgDesk, once, query};
use crate::error::StoreError;
use crate::ops::Counted;
use crate::store::answers::counted;
use crate::store::sql;

impl PgDesk {
    pub(crate) async fn counts(
        &self,
        queues: &[String],
        limit: Option<i64>,
    ) -> Result<Vec<Counted>, StoreError> {
        let statement = query(&sql!(self.names, "counts")).bind(queues.to_vec()).bind(limit);
        self.read("count", statement, counted).await
    }

    /// The database's time and the last id that was given out, if it is known.
    pub(crate) async fn given_out(&self) -> Result<(SystemTime, Option<i64>), StoreError> {
        let table = self.names.qualified(self.names.table());
        let mut tx = self.reading("read the last id").await?;
        let statement = once(&sql!(self.names, "given_out")).bind(table);
        let row = statement.fetch_one(&mut *tx).await;
        row.and_then(|row| Ok((row.try_get::<PgTime, _>(0)?.0, row.try_get(1)?)))
            .map_err(StoreError::of("read the last id"))
    }
}
