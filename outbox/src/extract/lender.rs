//! How lent transactions begin and end: what a database does for `Tx`.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use sqlx::Database;

use super::lent::Ended;
use super::lent::Lender;
use crate::error::StoreError;
use crate::publish::sealed::{On, Transaction};
use crate::publish::{Prepared, Publisher};
use crate::store::{Handled, Lease};

/// A database whose transactions can be lent: `sqlx::Postgres`, `sqlx::Sqlite`.
pub trait Lends: sealed::Lends {}
impl<DB: sealed::Lends> Lends for DB {}

pub(crate) mod sealed {
    use super::{
        Database, Duration, Ended, Handled, Lease, Lender, On, Open, Prepared, Publisher,
        StoreError,
    };

    #[diagnostic::on_unimplemented(
        message = "`Tx<{Self}>` cannot be lent",
        label = "not a database of an outbox",
        note = "write `Tx<sqlx::Postgres>` or `Tx<sqlx::Sqlite>`"
    )]
    pub trait Lends: Database {
        /// How long it may take to undo a transaction.
        const UNDO_LIMIT: Duration;

        /// A connection of this database, for publishing.
        fn on(connection: &mut Self::Connection) -> On<'_>;

        /// Begins a transaction.
        fn open(
            lender: &Lender,
        ) -> impl Future<Output = Result<Open<Self>, StoreError>> + Send + use<'_, Self>;

        /// Acks, publishes and commits, or rolls back. Leases that are not acked in the end
        /// start anew as with [`roll_back`](Self::roll_back).
        fn settle<'a>(
            open: Open<Self>,
            publisher: &'a Publisher,
            acks: &'a [Handled<'a>],
            leases: &'a [Lease],
        ) -> impl Future<Output = Result<Ended, StoreError>> + Send + use<'a, Self>;

        /// Publishes, and has the database check what the commit would check, as far as it can.
        fn try_out<'a>(
            open: &'a mut Open<Self>,
            publisher: &'a Publisher,
            messages: &'a [Prepared],
        ) -> impl Future<Output = Result<(), StoreError>> + Send + use<'a, Self>;

        /// Undoes everything. If the leases could not be extended meanwhile, starts them anew.
        fn roll_back<'a>(
            open: Open<Self>,
            publisher: &'a Publisher,
            leases: &'a [Lease],
        ) -> impl Future<Output = Result<(), StoreError>> + Send + use<'a, Self>;
    }
}

/// An open transaction.
pub struct Open<DB: Database> {
    pub(crate) tx: Begun<DB>,
    /// Its turn among the writers.
    #[cfg(feature = "sqlite")]
    pub(crate) turn: Option<tokio::sync::OwnedSemaphorePermit>,
    /// The pool on which it began, if nobody else can write meanwhile.
    #[cfg(feature = "sqlite")]
    pub(crate) pool: Option<sqlx::Pool<DB>>,
    /// Present if the row that is settled is elsewhere, as with the test broker.
    #[cfg(all(feature = "sqlite", feature = "testing"))]
    pub(crate) elsewhere: Option<super::Elsewhere>,
}

impl<DB: Database> Open<DB> {
    /// Whether nobody else can write to the row that is settled while the transaction is open.
    pub(super) fn is_sole_writer(&self) -> bool {
        #[cfg(all(feature = "sqlite", feature = "testing"))]
        if self.elsewhere.is_some() {
            return false;
        }
        #[cfg(feature = "sqlite")]
        return self.turn.is_some();
        #[cfg(not(feature = "sqlite"))]
        false
    }
}

/// A transaction that has begun.
pub(crate) enum Begun<DB: Database> {
    /// Its connection goes back to the pool, whatever becomes of it.
    #[cfg(feature = "sqlite")]
    Kept(sqlx::Transaction<'static, DB>),
    #[cfg(feature = "postgres")]
    Closing(crate::store::postgres::Closing<DB>),
}

#[cfg(feature = "postgres")]
impl<DB: Database> Begun<DB> {
    pub(crate) async fn commit(self) -> sqlx::Result<()> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Kept(tx) => tx.commit().await,
            Self::Closing(tx) => tx.commit().await,
        }
    }

    pub(crate) async fn rollback(self) -> sqlx::Result<()> {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Kept(tx) => tx.rollback().await,
            Self::Closing(tx) => tx.rollback().await,
        }
    }
}

impl<DB: Database> Deref for Begun<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Kept(tx) => tx,
            #[cfg(feature = "postgres")]
            Self::Closing(tx) => tx,
        }
    }
}

impl<DB: Database> DerefMut for Begun<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        match self {
            #[cfg(feature = "sqlite")]
            Self::Kept(tx) => tx,
            #[cfg(feature = "postgres")]
            Self::Closing(tx) => tx,
        }
    }
}

impl<DB: Lends> Transaction for Begun<DB> {
    fn on(&mut self) -> On<'_> {
        DB::on(self)
    }
}
