//! A transaction that is lent to a handler, whatever its database.

use futures_util::future::BoxFuture;

use crate::publish::{Prepared, Publisher};
use crate::store::Handled;
use crate::subscriber::HandlerError;

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
    /// Acks, publishes and commits.
    ///
    /// # Errors
    /// When the commit did not, or not surely, happen. What is written next must
    /// carry the token: it matches no row if the commit happened all the same.
    fn settle<'a>(
        &'a self,
        publisher: &'a Publisher,
        acks: &'a [Handled<'a>],
    ) -> BoxFuture<'a, Result<Ended, HandlerError>>;

    /// Undoes everything.
    fn roll_back(&self) -> BoxFuture<'_, ()>;
}
