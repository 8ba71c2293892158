//! Where lent transactions come from, and how they end, whatever their database.

use futures_util::future::BoxFuture;

use crate::error::StoreError;
use crate::publish::{Prepared, Publisher};
use crate::store::{Handled, Lease};
use crate::subscriber::HandlerError;

/// The pool of the app, from which its store lends transactions.
#[derive(Clone)]
pub enum Lender {
    #[cfg(feature = "postgres")]
    Postgres(std::sync::Arc<crate::store::postgres::PgLender>),
    #[cfg(feature = "sqlite")]
    Sqlite(std::sync::Arc<crate::store::sqlite::SqliteLender>),
}

impl Lender {
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(pool: sqlx::PgPool) -> Self {
        Self::Postgres(crate::store::postgres::PgLender::new(pool).into())
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn sqlite(pool: sqlx::SqlitePool) -> Self {
        Self::Sqlite(crate::store::sqlite::SqliteLender::new(pool).into())
    }

    /// The lender of a test broker.
    #[cfg(all(feature = "sqlite", feature = "testing"))]
    pub(crate) fn elsewhere(
        pool: sqlx::SqlitePool,
        names: crate::store::names::TableNames,
        elsewhere: super::Elsewhere,
    ) -> Self {
        let lender = crate::store::sqlite::SqliteLender::elsewhere(pool, names, elsewhere);
        Self::Sqlite(lender.into())
    }

    /// The name of its database, as `Database::NAME` of sqlx has it.
    pub(crate) fn database(&self) -> &'static str {
        match *self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => "PostgreSQL",
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => "SQLite",
        }
    }

    /// The lender of PostgreSQL, if it is one.
    #[cfg(feature = "postgres")]
    pub(crate) fn as_postgres(&self) -> Result<&crate::store::postgres::PgLender, StoreError> {
        match self {
            Self::Postgres(lender) => Ok(lender),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => Err(self.is_another()),
        }
    }

    /// The lender of SQLite, if it is one.
    #[cfg(feature = "sqlite")]
    pub(crate) fn as_sqlite(&self) -> Result<&crate::store::sqlite::SqliteLender, StoreError> {
        match self {
            Self::Sqlite(lender) => Ok(lender),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Err(self.is_another()),
        }
    }

    /// No handler gets this answer: its `Tx` asks for the database before it opens a transaction.
    #[cfg(all(feature = "postgres", feature = "sqlite"))]
    fn is_another(&self) -> StoreError {
        StoreError::new("begin", format!("the app runs on {}", self.database()), false)
    }
}

/// What became of a transaction that was to be committed.
pub enum Ended {
    /// Everything in it counts, and so does the ack.
    Committed,
    /// The row is still to be acked, with these messages: it is elsewhere, or no transaction had
    /// begun.
    Elsewhere(Vec<Prepared>),
    /// Another claim owns a row. The transaction is rolled back.
    LeaseLost,
}

/// A lent transaction, whatever its database.
pub(crate) trait Lent: Send + Sync {
    /// Acks, publishes and commits. Leases that are not acked are as after
    /// [`roll_back`](Self::roll_back).
    ///
    /// # Errors
    /// Fails if the commit did not happen, or possibly did not. What is written next must carry the
    /// token: it matches no row if the commit happened all the same.
    fn settle<'a>(
        &'a self,
        publisher: &'a Publisher,
        acks: &'a [Handled<'a>],
        leases: &'a [Lease],
    ) -> BoxFuture<'a, Result<Ended, HandlerError>>;

    /// Tries everything for which a commit with these messages could be refused, and leaves the
    /// transaction open.
    ///
    /// # Errors
    /// Returns the error with which the commit would fail.
    fn try_out<'a>(
        &'a self,
        publisher: &'a Publisher,
        messages: &'a [Prepared],
    ) -> BoxFuture<'a, Result<(), HandlerError>>;

    /// Undoes everything. If the leases could not be extended meanwhile, starts them anew.
    fn roll_back<'a>(&'a self, publisher: &'a Publisher, leases: &'a [Lease]) -> BoxFuture<'a, ()>;
}
