//! Where lent transactions come from, and how they end, whatever their database.

use std::any::Any;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::error::StoreError;
use crate::publish::{Prepared, Publisher};
use crate::store::{Handled, Lease};
use crate::subscriber::HandlerError;

/// What the store lends transactions of, from the pool of the app.
#[derive(Clone)]
pub struct Lender {
    database: &'static str,
    of: Arc<dyn Any + Send + Sync>,
}

impl Lender {
    /// The name of the database is as `Database::NAME` of sqlx has it.
    pub(crate) fn new(database: &'static str, of: impl Any + Send + Sync) -> Self {
        Self { database, of: Arc::new(of) }
    }

    pub(crate) fn database(&self) -> &'static str {
        self.database
    }

    /// The lender of one database.
    ///
    /// # Errors
    /// Fails if it is another. No handler gets this answer: its `Tx` asks for the database before
    /// it opens a transaction.
    pub(crate) fn get<L: Any>(&self) -> Result<&L, StoreError> {
        let another = || format!("the app runs on {}", self.database);
        self.of.downcast_ref().ok_or_else(|| StoreError::new("begin", another(), false))
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
