//! Why a row is where it is: what the file tells about it, about its lock and about who reads its
//! queue. `ops::why` makes an answer of that.

use std::time::Duration;

use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection as _, Executor as _, Row as _};
use tokio::time::sleep;

use super::{SqliteDesk, connect, query};
use crate::error::StoreError;
use crate::message::row::delay_micros;
use crate::ops::{FoundRow, LockedBy, Readers, Session};
use crate::store::sql;

/// Transactions of the engine are over by then, so what is still there lasts.
const LASTING: Duration = Duration::from_millis(100);

const ACTION: &str = "ask why";

impl SqliteDesk {
    pub(crate) async fn why_readers(
        &self,
        queue: &str,
        id: i64,
        lease: Duration,
    ) -> Result<Readers, StoreError> {
        let statement = query(&sql!(self.names, "why_readers"))
            .bind(queue.to_owned())
            .bind(id)
            .bind(delay_micros(lease));
        let row = statement.fetch_one(self.pool()).await.map_err(StoreError::of(ACTION))?;
        let leases = row.get::<i64, _>(0).max(0).unsigned_abs();
        Ok(Readers { sleepers: None, leases })
    }

    pub(crate) async fn why_locks(&self, _: &FoundRow) -> Result<LockedBy, StoreError> {
        Ok(LockedBy { table: self.why_table_locked().await?, row: None })
    }

    /// SQLite does not say by whom.
    pub(crate) async fn why_table_locked(&self) -> Result<Option<Vec<Session>>, StoreError> {
        Ok(self.is_written().await?.then(Vec::new))
    }

    /// The transaction that writes a row gives out its id. So one that is not over hides the id as
    /// well.
    pub(crate) async fn why_uncommitted(
        &self,
        id: i64,
        given_out: bool,
    ) -> Result<Option<Vec<Session>>, StoreError> {
        Ok((!given_out && id > 0 && self.is_written().await?).then(Vec::new))
    }

    /// Whether somebody has the write lock, both now and a moment later. The lock is asked for on a
    /// connection of its own, which waits for nobody, and is given back at once.
    async fn is_written(&self) -> Result<bool, StoreError> {
        let options = (*self.pool().connect_options()).clone();
        let options = options.create_if_missing(false).busy_timeout(Duration::ZERO);
        let opened = SqliteConnection::connect_with(&options).await;
        let mut connection = opened.map_err(StoreError::of(ACTION))?;
        let before = commits(&mut connection).await;
        let mut written = is_busy(&mut connection).await?;
        if written {
            sleep(LASTING).await;
            // If others have committed meanwhile, nobody has held it all the time.
            written = is_busy(&mut connection).await? && commits(&mut connection).await == before;
        }
        connection.close().await.map_err(StoreError::of(ACTION))?;
        Ok(written)
    }
}

/// Changes when others commit; `None` if it cannot be read now.
async fn commits(connection: &mut SqliteConnection) -> Option<i64> {
    sqlx::query_scalar("PRAGMA data_version").fetch_one(connection).await.ok()
}

async fn is_busy(connection: &mut SqliteConnection) -> Result<bool, StoreError> {
    let failed = StoreError::of(ACTION);
    match connection.execute("BEGIN IMMEDIATE").await {
        Ok(_) => connection.execute("ROLLBACK").await.map(|_| false).map_err(failed),
        Err(refused) if connect::is_busy(&refused) => Ok(true),
        // Nobody here writes a file that is read-only.
        Err(sqlx::Error::Database(_)) => Ok(false),
        Err(error) => Err(failed(error)),
    }
}
