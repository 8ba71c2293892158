//! Where lent transactions come from, and how they end.

use std::sync::Arc;

use sqlx::{Database, Transaction};
use tokio::sync::OwnedSemaphorePermit;

use super::lent::Ended;
use crate::error::StoreError;
use crate::publish::Publisher;
use crate::store::Handled;

/// The pool of the app, as its store lends from it.
#[derive(Clone)]
pub enum Lender {
    #[cfg(feature = "postgres")]
    Postgres(sqlx::PgPool),
    #[cfg(feature = "sqlite")]
    Sqlite(Arc<crate::store::sqlite::SqliteLender>),
}

impl Lender {
    #[cfg(feature = "sqlite")]
    pub(crate) fn sqlite(pool: sqlx::SqlitePool) -> Self {
        Self::Sqlite(Arc::new(crate::store::sqlite::SqliteLender::new(pool)))
    }

    /// For the test broker.
    #[cfg(all(feature = "sqlite", feature = "testing"))]
    pub(crate) fn elsewhere(pool: sqlx::SqlitePool) -> Self {
        Self::Sqlite(Arc::new(crate::store::sqlite::SqliteLender::elsewhere(pool)))
    }

    /// The name of its type in sqlx.
    pub(crate) fn database(&self) -> &'static str {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => <sqlx::Postgres as Database>::NAME,
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => <sqlx::Sqlite as Database>::NAME,
        }
    }

    /// For a transaction of another database.
    pub(crate) fn is_another(&self) -> StoreError {
        StoreError::new("begin", format!("the app runs on {}", self.database()), false)
    }
}

/// A database whose transactions can be lent: `sqlx::Postgres`, `sqlx::Sqlite`.
#[diagnostic::on_unimplemented(
    message = "`Tx<{Self}>` cannot be lent",
    label = "not a database of an outbox",
    note = "write `Tx<sqlx::Postgres>` or `Tx<sqlx::Sqlite>`"
)]
pub trait Lends: sealed::Lends {}
impl<DB: sealed::Lends> Lends for DB {}

pub(crate) mod sealed {
    use super::{Database, Ended, Handled, Lender, Open, Publisher, StoreError};

    #[diagnostic::on_unimplemented(
        message = "`Tx<{Self}>` cannot be lent",
        label = "not a database of an outbox",
        note = "write `Tx<sqlx::Postgres>` or `Tx<sqlx::Sqlite>`"
    )]
    pub trait Lends: Database {
        /// Begins one.
        fn open(
            lender: &Lender,
        ) -> impl Future<Output = Result<Open<Self>, StoreError>> + Send + use<'_, Self>;

        /// Acks, publishes and commits, or rolls back.
        fn settle<'a>(
            open: Open<Self>,
            publisher: &'a Publisher,
            acks: &'a [Handled<'a>],
        ) -> impl Future<Output = Result<Ended, StoreError>> + Send + use<'a, Self>;

        /// Undoes everything.
        fn roll_back(
            open: Open<Self>,
        ) -> impl Future<Output = Result<(), StoreError>> + Send + use<Self>;
    }
}

/// An open transaction.
pub struct Open<DB: Database> {
    pub(crate) tx: Transaction<'static, DB>,
    /// Its place among the writers.
    pub(crate) turn: Option<OwnedSemaphorePermit>,
    /// The row that is settled lies elsewhere, as the test broker's do.
    pub(crate) elsewhere: bool,
}
