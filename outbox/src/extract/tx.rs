//! `Tx`: the transaction in which the delivery is settled, lent to its handler. Its life:
//!
//! | it is | who has it then |
//! |---|---|
//! | asked for | nobody: the `Loan` of the delivery has its `Home`, which says `Place::Nowhere` |
//! | beginning | a task of its own; `Beginning` measures how long the handler waits |
//! | lent | the handler, as `Tx`; its `Home` says `Place::Lent` |
//! | home | its `Home`, as `Place::Here`, once the `Tx` is dropped |
//! | settled | `Lends::settle`, which the engine calls through `Lent`; `Ended` says how it ended |
//! | or rolled back | `Lends::roll_back`, in the same way, or from its task if it came too late |

use std::fmt;
use std::future::ready;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::Database;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::lender::{Lends, Open};
use super::lent::{Ended, Lender, Lent};
use super::{Context, FromContext, States};
use crate::error::BoxError;
use crate::publish::sealed::{self, On};
use crate::publish::{Prepared, Publisher};
use crate::store::names::TableNames;
use crate::store::{Handled, Lease};
use crate::subscriber::{HandlerError, LATE};
use crate::unpoisoned::Locked as _;

/// How long the ack and the commit may take together.
const COMMIT_LIMIT: Duration = Duration::from_secs(30);

#[doc = include_str!("../docs/tx.md")]
pub struct Tx<DB: Database> {
    /// `None` only while it is dropped.
    open: Option<Open<DB>>,
    home: Arc<Home<DB>>,
    context: Context,
}

/// Where the transaction goes once the handler is done with it.
struct Home<DB: Database> {
    place: Mutex<Place<DB>>,
    /// The runtime on which the transaction began. A handler may drop it on a thread of its own,
    /// and sqlx panics if a connection comes back outside of a runtime.
    runtime: Handle,
}

enum Place<DB: Database> {
    /// It has not begun, or it has ended.
    Nowhere,
    /// The handler has it.
    Lent,
    Here(Open<DB>),
}

impl<DB: Database> Home<DB> {
    fn put(&self, place: Place<DB>) -> Place<DB> {
        std::mem::replace(&mut *self.place.locked(), place)
    }
}

impl<DB: Database> Drop for Home<DB> {
    fn drop(&mut self) {
        let _inside = self.runtime.enter();
        drop(self.put(Place::Nowhere));
    }
}

impl<DB: Database> Drop for Tx<DB> {
    fn drop(&mut self) {
        let _inside = self.home.runtime.enter();
        let Some(open) = self.open.take() else { return };
        let mut place = self.home.place.locked();
        // If the handler has returned and kept it, nobody takes it any more.
        if let Place::Lent = *place {
            *place = Place::Here(open);
        }
    }
}

/// Invariant: the transaction is there until the `Tx` is dropped.
const HERE: &str = "a transaction is lent until it is dropped";

impl<DB: Database> Deref for Tx<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.open.as_ref().expect(HERE).tx
    }
}

impl<DB: Database> DerefMut for Tx<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.open.as_mut().expect(HERE).tx
    }
}

/// Publishing in a lent transaction, as in a transaction of the caller's.
impl<DB: Lends> sealed::Transaction for Tx<DB> {
    fn on(&mut self) -> On<'_> {
        DB::on(self)
    }

    /// Keeps the messages if they will not last, or will not stay in these tables.
    fn keep(&mut self, messages: &[Prepared]) {
        if let Some(kept) = self.context.delivery().loan().rehearsed.get() {
            kept.locked().extend_from_slice(messages);
        }
        #[cfg(all(feature = "sqlite", feature = "testing"))]
        if let Some(elsewhere) = &mut self.open.as_mut().expect(HERE).elsewhere {
            elsewhere.publish(messages);
        }
    }

    #[cfg(all(feature = "sqlite", feature = "testing"))]
    fn cancel_elsewhere(&mut self, queue: &str, timer_id: &str) -> bool {
        let elsewhere = &mut self.open.as_mut().expect(HERE).elsewhere;
        elsewhere.as_mut().is_some_and(|elsewhere| elsewhere.cancel(queue, timer_id))
    }

    fn settles(&self, queue: &str, timer_id: &str) -> Option<&TableNames> {
        let delivery = self.context.delivery();
        let own = delivery.loan().settles(&delivery.row, queue, timer_id);
        own.then(|| delivery.common.publisher.names())
    }
}

impl<DB: Database> fmt::Debug for Tx<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}

impl<DB: Lends> FromContext for Tx<DB> {
    type Rejection = HandlerError;

    const TAKES_TRANSACTION: bool = true;
    const SAME_FOR_ALL: bool = true;

    async fn from_context(ctx: &Context) -> Result<Self, HandlerError> {
        let refused = |why: &str| HandlerError::new(HandlerError::TRANSACTION, why);
        let delivery = ctx.delivery();
        if !delivery.common.collects() {
            return Err(refused("under `AckFirst` the message is settled before the handler runs"));
        }
        let home = Home { place: Mutex::new(Place::Nowhere), runtime: Handle::current() };
        let home = Arc::new(home);
        if delivery.loan().lent.set(Arc::clone(&home) as _).is_err() {
            return Err(refused("a handler takes one `Tx`"));
        }
        let lender =
            delivery.common.states.lender().cloned().ok_or_else(|| refused("nothing to lend"))?;
        if lender.database() != DB::NAME {
            return Err(refused(&format!("the app runs on {}", lender.database())));
        }
        let beginning = delivery.loan().begin();
        // On a task of its own: if a begin is cancelled, sqlx leaves the session inside the
        // transaction.
        let (hand, handed) = oneshot::channel();
        let publisher = delivery.common.publisher.clone();
        tokio::spawn(async move {
            if let Err(Ok(open)) = hand.send(DB::open(&lender).await) {
                // The handler was given up meanwhile.
                drop(timeout(DB::UNDO_LIMIT, DB::roll_back(open, &publisher, &[])).await);
            }
        });
        // A message is not to blame for what fails before its handler begins.
        let open = handed.await.map_err(HandlerError::put_off)?.map_err(HandlerError::put_off)?;
        drop(beginning);
        if delivery.is_run_late() {
            let publisher = &delivery.common.publisher;
            drop(timeout(DB::UNDO_LIMIT, DB::roll_back(open, publisher, &[])).await);
            return Err(HandlerError::put_off(LATE));
        }
        if open.is_sole_writer() {
            delivery.loan().begin_sole_writing();
        }
        home.put(Place::Lent);
        Ok(Self { open: Some(open), home, context: ctx.clone() })
    }

    fn check(states: &States) -> Result<(), String> {
        let sqlite = DB::NAME == "SQLite";
        let wanted = if sqlite { "`Tx<sqlx::Sqlite>`" } else { "`Tx<sqlx::Postgres>`" };
        match states.lender().map(Lender::database) {
            Some(there) if there == DB::NAME => Ok(()),
            Some(there) => {
                Err(format!("it takes {wanted}, but only transactions of {there} are lent"))
            }
            None if states.is_deprived() => Ok(()),
            None if sqlite => Err(format!(
                "it takes {wanted}, but there is no database: a `TestBroker` takes one with \
                 `.transactions(pool)`"
            )),
            None => Err(format!(
                "it takes {wanted}, but there is no database: test it with `App::postgres(pool)`, \
                 because a `TestBroker` lends only transactions of SQLite; \
                 `TestBroker::with([..])` takes the handlers to test, without this one"
            )),
        }
    }
}

const KEPT: &str = "the handler returned and kept its `Tx`; it is to be dropped before";

fn failed(error: impl Into<BoxError>) -> HandlerError {
    HandlerError::new(HandlerError::TRANSACTION, error)
}

impl<DB: Lends> Lent for Home<DB> {
    fn settle<'a>(
        &'a self,
        publisher: &'a Publisher,
        acks: &'a [Handled<'a>],
        leases: &'a [Lease],
    ) -> BoxFuture<'a, Result<Ended, HandlerError>> {
        let open = match self.put(Place::Nowhere) {
            Place::Here(open) => open,
            Place::Nowhere => return Box::pin(ready(Ok(Ended::Elsewhere(Vec::new())))),
            Place::Lent => return Box::pin(ready(Err(failed(KEPT)))),
        };
        let run = timeout(COMMIT_LIMIT, DB::settle(open, publisher, acks, leases));
        Box::pin(async move {
            match run.await {
                Ok(Err(error)) if error.transient => Err(HandlerError::put_off(error)),
                Ok(ended) => ended.map_err(failed),
                Err(_) => Err(HandlerError::put_off(
                    "the ack and the commit were not answered within 30 s",
                )),
            }
        })
    }

    fn try_out<'a>(
        &'a self,
        publisher: &'a Publisher,
        messages: &'a [Prepared],
    ) -> BoxFuture<'a, Result<(), HandlerError>> {
        let mut open = match self.put(Place::Nowhere) {
            Place::Here(open) => open,
            Place::Nowhere => return Box::pin(ready(Ok(()))),
            Place::Lent => return Box::pin(ready(Err(failed(KEPT)))),
        };
        Box::pin(async move {
            let tried = DB::try_out(&mut open, publisher, messages).await;
            self.put(Place::Here(open));
            tried.map_err(|error| {
                if error.transient { HandlerError::put_off(error) } else { failed(error) }
            })
        })
    }

    fn roll_back<'a>(&'a self, publisher: &'a Publisher, leases: &'a [Lease]) -> BoxFuture<'a, ()> {
        let Place::Here(open) = self.put(Place::Nowhere) else { return Box::pin(ready(())) };
        let run = timeout(DB::UNDO_LIMIT, DB::roll_back(open, publisher, leases));
        // If it fails, the connection has failed, and is closed.
        Box::pin(async move { drop(run.await) })
    }
}

#[cfg(test)]
#[cfg(feature = "sqlite")]
mod tests {
    use std::thread;

    use sqlx::{Sqlite, SqlitePool};
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::task::spawn_blocking;

    use super::*;
    use crate::extract::lends::Lends as _;
    use crate::store::sqlite::SqliteLender;
    use crate::{App, Subscriber};

    async fn tables() -> (SqlitePool, std::path::PathBuf) {
        let file = std::env::temp_dir().join(format!("outbox-{}.db", uuid::Uuid::new_v4()));
        let pool = crate::sqlite::connect(&format!("sqlite:{}", file.display())).await.unwrap();
        crate::migrate(&pool).await.unwrap();
        (pool, file)
    }

    /// If nobody takes the transaction any more, its connection goes back to the pool.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_thread_without_a_runtime_may_let_go_of_one_that_its_handler_kept() {
        let (pool, file) = tables().await;
        let (keep, mut kept) = unbounded_channel();
        let handler = Subscriber::new("it", "q", move |context: Context| {
            let keep = keep.clone();
            async move {
                let tx = Tx::<Sqlite>::from_context(&context).await.unwrap();
                let _ = keep.send(thread::spawn(move || {
                    while matches!(*tx.home.place.locked(), Place::Lent) {
                        thread::sleep(Duration::from_millis(1));
                    }
                    drop(tx);
                }));
            }
        });
        let running = App::sqlite(pool.clone()).only([handler]).start().await.unwrap();
        let mut tx = crate::sqlite::begin(&pool).await.unwrap();
        crate::publish(&mut tx, "q", &7).await.unwrap();
        tx.commit().await.unwrap();
        let thread = kept.recv().await.unwrap();
        spawn_blocking(|| thread.join()).await.unwrap().expect("no panic");
        running.stop().await.unwrap();
        // It would wait for ever if a connection were lost.
        pool.close().await;
        std::fs::remove_file(file).unwrap();
    }

    /// As if the run had ended with its runtime, and no other thread had the transaction.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn nor_does_the_last_that_knows_of_one_need_a_runtime() {
        let (pool, file) = tables().await;
        let lender = Lender::new("SQLite", SqliteLender::new(pool.clone()));
        let open = Sqlite::open(&lender).await.unwrap();
        let home = Home { place: Mutex::new(Place::Here(open)), runtime: Handle::current() };
        let thread = thread::spawn(|| drop(home));
        spawn_blocking(|| thread.join()).await.unwrap().expect("no panic");
        pool.close().await;
        std::fs::remove_file(file).unwrap();
    }
}
