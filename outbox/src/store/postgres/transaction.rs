//! A transaction that is lent. Its connection goes back to its pool only when the transaction has
//! ended.
//!
//! A pool waits without end for a sign of life from a connection that comes back to it. If the
//! server does not answer, or is still at a statement that was given up, the place of that
//! connection in the pool would be lost.

use std::io::ErrorKind;
use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{Database, PgConnection, Pool, Postgres, SqlSafeStr as _};
use sqlx_core::transaction::TransactionManager as _;
use tokio::time::timeout;

use super::CONNECT_LIMIT;
use crate::error::takes_no_writes;

/// Closes its connection when it is dropped before it has ended.
pub struct Closing<DB: Database>(Option<PoolConnection<DB>>);

/// Invariant: the connection is there until the transaction has ended.
const HERE: &str = "a transaction has a connection until it ends";

impl<DB: Database> Closing<DB> {
    pub(super) async fn begin(pool: &Pool<DB>, statement: &'static str) -> sqlx::Result<Self> {
        let mut tx = Self(Some(pool.acquire().await?));
        let answer = DB::TransactionManager::begin(&mut tx, Some(statement.into_sql_str()));
        let Ok(begun) = timeout(CONNECT_LIMIT, answer).await else {
            return Err(sqlx::Error::Io(ErrorKind::TimedOut.into()));
        };
        // A server that refused the BEGIN has begun nothing. If it refused what stands behind the
        // BEGIN, in the same message, it has left a transaction that sqlx knows nothing of.
        if begun.as_ref().is_err_and(takes_no_writes) {
            tx.0.take();
        }
        begun.map(|()| tx)
    }

    pub(crate) async fn commit(mut self) -> sqlx::Result<()> {
        let committed = DB::TransactionManager::commit(&mut self).await;
        if let Err(sqlx::Error::Database(_)) = committed {
            // The server has answered, but sqlx still counts a transaction.
            DB::TransactionManager::start_rollback(&mut self);
        } else if committed.is_err() {
            return committed;
        }
        self.0.take();
        committed
    }

    pub(crate) async fn rollback(mut self) -> sqlx::Result<()> {
        DB::TransactionManager::rollback(&mut self).await?;
        self.0.take();
        Ok(())
    }
}

/// Whether the transaction has not ended. When the begin of a savepoint is dropped half-way, sqlx
/// rolls everything back, and what comes after it stands alone.
pub(super) fn is_open(connection: &PgConnection) -> bool {
    <Postgres as Database>::TransactionManager::get_transaction_depth(connection) > 0
}

impl<DB: Database> Deref for Closing<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        self.0.as_ref().expect(HERE)
    }
}

impl<DB: Database> DerefMut for Closing<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        self.0.as_mut().expect(HERE)
    }
}

impl<DB: Database> Drop for Closing<DB> {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}
