//! `Tx`: the transaction in which the delivery is settled, lent to its handler.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::{Database, Transaction};
use tokio::time::timeout;

use super::lender::{Lender, Lends, Open};
use super::{Context, FromContext, States};
use crate::publish::{self, Publisher};
use crate::store::Handled;
use crate::subscriber::HandlerError;

/// How long the ack and the commit may take together.
const COMMIT_LIMIT: Duration = Duration::from_secs(30);

#[doc = include_str!("../docs/tx.md")]
pub struct Tx<DB: Database> {
    /// `None` only while it is dropped.
    open: Option<Open<DB>>,
    home: Arc<Home<DB>>,
}

/// Where the transaction goes when the handler is done with it.
struct Home<DB: Database>(Mutex<Option<Open<DB>>>);

impl<DB: Database> Home<DB> {
    fn lock(&self) -> MutexGuard<'_, Option<Open<DB>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<DB: Database> Drop for Tx<DB> {
    fn drop(&mut self) {
        *self.home.lock() = self.open.take();
    }
}

/// Invariant: the transaction is there until the drop.
const HERE: &str = "a transaction is lent until it is dropped";

impl<DB: Database> Deref for Tx<DB> {
    type Target = Transaction<'static, DB>;

    fn deref(&self) -> &Self::Target {
        &self.open.as_ref().expect(HERE).tx
    }
}

impl<DB: Database> DerefMut for Tx<DB> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.open.as_mut().expect(HERE).tx
    }
}

impl<DB: Database> fmt::Debug for Tx<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}

impl<DB> FromContext for Tx<DB>
where
    DB: Lends,
    Transaction<'static, DB>: publish::Transaction,
{
    type Rejection = HandlerError;

    async fn from_context(ctx: &Context) -> Result<Self, HandlerError> {
        let refused = |why: &str| HandlerError::new(HandlerError::TRANSACTION, why);
        let delivery = ctx.delivery();
        if delivery.collected.is_none() {
            return Err(refused("under `AckFirst` the message is settled before the handler runs"));
        }
        let lender = delivery.states.lender().cloned().ok_or_else(|| refused("nothing to lend"))?;
        // On a task of its own: sqlx leaves the session inside the transaction
        // when a begin is cancelled.
        let open = tokio::spawn(async move { DB::open(&lender).await }).await;
        let open = open.map_err(|error| HandlerError::new(HandlerError::TRANSACTION, error))?;
        let open = open.map_err(|error| HandlerError::new(HandlerError::TRANSACTION, error))?;
        let home = Arc::new(Home(Mutex::new(None)));
        let lent: Arc<dyn Lent> = Arc::clone(&home) as _;
        let tx = Self { open: Some(open), home };
        match delivery.lent.set(lent) {
            Ok(()) => Ok(tx),
            Err(_) => Err(refused("a handler takes one `Tx`")),
        }
    }

    fn check(states: &States) -> Result<(), String> {
        let wanted = DB::NAME;
        match states.lender().map(Lender::database) {
            Some(there) if there == wanted => Ok(()),
            Some(there) => Err(format!("it wants `Tx<{wanted}>`, but the app runs on {there}")),
            None => Err(format!(
                "it wants `Tx<{wanted}>`; give the test broker a database with `.transactions(pool)`"
            )),
        }
    }
}

/// What became of a transaction that was to be committed.
pub(crate) enum Ended {
    /// Everything in it counts, the ack with it.
    Committed,
    /// The test broker's: it counts, and these were published in it.
    Elsewhere(Vec<publish::Prepared>),
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

impl<DB> Lent for Home<DB>
where
    DB: Lends,
    Transaction<'static, DB>: publish::Transaction,
{
    fn settle<'a>(
        &'a self,
        publisher: &'a Publisher,
        acks: &'a [Handled<'a>],
    ) -> BoxFuture<'a, Result<Ended, HandlerError>> {
        let open = self.lock().take();
        Box::pin(async move {
            let failed = |error| HandlerError::new(HandlerError::TRANSACTION, error);
            let Some(open) = open else {
                return Err(failed(Box::<dyn std::error::Error + Send + Sync>::from(
                    "the handler returned and kept its `Tx`; it is to be dropped before",
                )));
            };
            match timeout(COMMIT_LIMIT, open.settle(publisher, acks)).await {
                Ok(ended) => ended.map_err(|error| failed(error.into())),
                Err(_) => Err(failed("the commit was not answered within 30 s".into())),
            }
        })
    }

    fn roll_back(&self) -> BoxFuture<'_, ()> {
        let open = self.lock().take();
        Box::pin(async move {
            if let Some(open) = open {
                // A failure is one of the connection, which is then closed.
                let _ = timeout(COMMIT_LIMIT, open.tx.rollback()).await;
            }
        })
    }
}
