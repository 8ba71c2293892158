//! What each database does for publishing. Sealed: `Prepared` is private.

use super::{Prepared, Published};
use crate::error::StoreError;
use crate::message::Row;
use crate::store::names::TableNames;
#[cfg(feature = "postgres")]
use crate::store::postgres::publish as postgres;
#[cfg(feature = "sqlite")]
use crate::store::sqlite::publish as sqlite;

/// The statements of a publisher, for every database that is compiled in.
pub struct Statements {
    #[cfg(feature = "postgres")]
    pub(crate) postgres: postgres::PublishSql,
    #[cfg(feature = "sqlite")]
    pub(crate) sqlite: sqlite::PublishSql,
}

/// Where the statements of a transaction run.
pub enum On<'a> {
    #[cfg(feature = "postgres")]
    Postgres(&'a mut sqlx::PgConnection),
    #[cfg(feature = "sqlite")]
    Sqlite(&'a mut sqlx::SqliteConnection),
    #[cfg(feature = "testing")]
    Memory(&'a mut crate::store::memory::MemoryTransaction),
    /// Without a database there is no transaction.
    #[cfg(not(any(feature = "postgres", feature = "sqlite", feature = "testing")))]
    Nowhere(std::convert::Infallible, std::marker::PhantomData<&'a ()>),
}

/// Calls what has this name in the `publish` of the database.
macro_rules! on {
    ($on:expr, $statements:expr, $call:ident($argument:expr $(, $other:expr)?)) => {
        match $on {
            #[cfg(feature = "postgres")]
            Self::Postgres(tx) => {
                postgres::$call(tx, &$statements.postgres, $argument $(, $other)?).await
            }
            #[cfg(feature = "sqlite")]
            Self::Sqlite(tx) => {
                sqlite::$call(tx, &$statements.sqlite, $argument $(, $other)?).await
            }
            #[cfg(feature = "testing")]
            Self::Memory(tx) => Ok(tx.$call($argument $(, $other)?)),
        }
    };
}

impl On<'_> {
    pub(crate) async fn insert(
        self,
        statements: &Statements,
        message: &Prepared,
    ) -> Result<Published, StoreError> {
        on!(self, statements, insert(message))
    }

    pub(crate) async fn insert_batch(
        self,
        statements: &Statements,
        messages: &[&Prepared],
    ) -> Result<Vec<Published>, StoreError> {
        on!(self, statements, insert_batch(messages))
    }

    pub(crate) async fn cancel_timer(
        self,
        statements: &Statements,
        queue: &str,
        timer_id: &str,
    ) -> Result<bool, StoreError> {
        on!(self, statements, cancel_timer(queue, timer_id))
    }

    /// Whether live rows hold the names of timers that were not written. Each such row is to be
    /// left alone, or is worked on. Unless a trigger leaves rows out, there is one.
    pub(crate) async fn holds_timers(
        self,
        statements: &Statements,
        timers: &[&Prepared],
    ) -> Result<Vec<bool>, StoreError> {
        on!(self, statements, holds_timers(timers))
    }
}

#[diagnostic::on_unimplemented(
    message = "a message is published in a transaction, and `{Self}` is not one",
    label = "not a transaction",
    note = "begin one with `pool.begin().await?`, on SQLite with `outbox::sqlite::begin(&pool).await?`, and pass `&mut tx`, not `&mut *tx`"
)]
pub trait Transaction: Send {
    fn on(&mut self) -> On<'_>;

    /// Told of what the caller publishes, right before that is written.
    fn keep(&mut self, messages: &[Prepared]) {
        let _ = messages;
    }

    /// Cancels a timer that is not in these tables. Returns whether there was one.
    fn cancel_elsewhere(&mut self, queue: &str, timer_id: &str) -> bool {
        let _ = (queue, timer_id);
        false
    }

    /// The tables in which its last statement settles this timer, if it does.
    fn settles(&self, queue: &str, timer_id: &str) -> Option<&TableNames> {
        let _ = (queue, timer_id);
        None
    }
}

/// So that a fn with a parameter `tx: &mut ..` may hand on `&mut tx` as well.
#[diagnostic::do_not_recommend]
impl<T: Transaction + ?Sized> Transaction for &mut T {
    fn on(&mut self) -> On<'_> {
        T::on(self)
    }

    fn keep(&mut self, messages: &[Prepared]) {
        T::keep(self, messages);
    }

    fn cancel_elsewhere(&mut self, queue: &str, timer_id: &str) -> bool {
        T::cancel_elsewhere(self, queue, timer_id)
    }

    fn settles(&self, queue: &str, timer_id: &str) -> Option<&TableNames> {
        T::settles(self, queue, timer_id)
    }
}

pub trait Connection: Send {
    fn pending(
        &mut self,
        statements: &Statements,
        queue: &str,
        limit: i64,
    ) -> impl Future<Output = Result<Vec<Row>, StoreError>> + Send;
}
