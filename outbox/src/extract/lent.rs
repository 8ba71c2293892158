//! Where lent transactions come from, and how they end, whatever their database.

use futures_util::future::BoxFuture;

use crate::error::StoreError;
use crate::publish::{Prepared, Publisher};
use crate::store::{Handled, Lease};
use crate::subscriber::HandlerError;

/// The pool of the app, as its store lends from it.
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

    /// For the test broker.
    #[cfg(all(feature = "sqlite", feature = "testing"))]
    pub(crate) fn elsewhere(
        pool: sqlx::SqlitePool,
        names: crate::store::names::TableNames,
        elsewhere: super::Elsewhere,
    ) -> Self {
        let lender = crate::store::sqlite::SqliteLender::elsewhere(pool, names, elsewhere);
        Self::Sqlite(lender.into())
    }

    /// Its name, as `Database::NAME` of sqlx says it.
    pub(crate) fn database(&self) -> &'static str {
        match *self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => "PostgreSQL",
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => "SQLite",
        }
    }

    /// If it is PostgreSQL's.
    #[cfg(feature = "postgres")]
    pub(crate) fn as_postgres(&self) -> Result<&crate::store::postgres::PgLender, StoreError> {
        match self {
            Self::Postgres(lender) => Ok(lender),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => Err(self.is_another()),
        }
    }

    /// Itself, if it is SQLite's.
    #[cfg(feature = "sqlite")]
    pub(crate) fn as_sqlite(&self) -> Result<&crate::store::sqlite::SqliteLender, StoreError> {
        match self {
            Self::Sqlite(lender) => Ok(lender),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Err(self.is_another()),
        }
    }

    /// Refused at the start already, unless the handler did not say what it takes.
    #[cfg(all(feature = "postgres", feature = "sqlite"))]
    fn is_another(&self) -> StoreError {
        StoreError::new("begin", format!("the app runs on {}", self.database()), false)
    }
}

/// What became of a transaction that was to be committed.
pub enum Ended {
    /// Everything in it counts, the ack with it.
    Committed,
    /// The row is still to be acked, with these messages: it lies elsewhere, or
    /// no transaction had begun.
    Elsewhere(Vec<Prepared>),
    /// Another claim owns a row: rolled back.
    LeaseLost,
}

/// A lent transaction, whatever its database.
pub(crate) trait Lent: Send + Sync {
    /// Acks, publishes and commits. Of these leases those that are not acked are as after
    /// [`roll_back`](Self::roll_back).
    ///
    /// # Errors
    /// When the commit did not, or not surely, happen. What is written next must
    /// carry the token: it matches no row if the commit happened all the same.
    fn settle<'a>(
        &'a self,
        publisher: &'a Publisher,
        acks: &'a [Handled<'a>],
        leases: &'a [Lease],
    ) -> BoxFuture<'a, Result<Ended, HandlerError>>;

    /// Does what a commit with these messages would be refused for, and leaves it open.
    ///
    /// # Errors
    /// With which the commit would fail.
    fn try_out<'a>(
        &'a self,
        publisher: &'a Publisher,
        messages: &'a [Prepared],
    ) -> BoxFuture<'a, Result<(), HandlerError>>;

    /// Undoes everything, and starts the leases anew if they could not be extended
    /// meanwhile.
    fn roll_back<'a>(&'a self, publisher: &'a Publisher, leases: &'a [Lease]) -> BoxFuture<'a, ()>;
}
