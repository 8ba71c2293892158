//! Publishing, always inside the caller's own transaction.

mod collected;
mod error;
mod outgoing;
mod prepare;
mod publisher;
mod queue;
mod returned;
pub(crate) mod sealed;
mod tally;
mod timers;

pub(crate) use collected::{Collected, Gathered};
pub use error::PublishError;
pub use outgoing::{Outgoing, TimerConflict};
pub(crate) use prepare::{Due, MAX_NAME_CHARS, Prepared, check_name};
pub(crate) use publisher::MAX_PAYLOAD;
pub use publisher::Publisher;
pub use queue::{Queue, QueueFor, QueueName, QueueOf};
pub(crate) use returned::together;
pub(crate) use tally::Tally;
pub(crate) use timers::apart;
#[cfg(feature = "postgres")]
pub(crate) use timers::in_lock_order;

use serde::Serialize;

use crate::error::StoreError;

/// What became of a published message. Nothing is visible to others before the
/// caller's transaction commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Published {
    /// A new row with this id.
    Inserted(i64),
    /// Under [`TimerConflict::Extend`]: the live row that has the timer name, with this id, was
    /// moved to the new time, which is later, and has the new payload and headers.
    Extended(i64),
    /// Under [`TimerConflict::Extend`]: a live row with this id has the timer name, and is as it
    /// was: it is due at the new time already, or later. No claim holds it.
    Kept(i64),
    /// Nothing was written: a live row of the queue has the timer name. Under
    /// `Extend`, a claim holds that row, as in [`Publisher::cancel_timer`].
    Duplicate,
}

impl Published {
    /// The id of the row, unless it is a duplicate.
    #[must_use]
    pub fn id(self) -> Option<i64> {
        match self {
            Self::Inserted(id) | Self::Extended(id) | Self::Kept(id) => Some(id),
            Self::Duplicate => None,
        }
    }

    /// The rows that were written.
    pub(crate) fn rows(self) -> usize {
        usize::from(matches!(self, Self::Inserted(_) | Self::Extended(_)))
    }
}

/// What became of a message for which no row came back. Without a timer name it is no duplicate.
pub(crate) fn unwritten(is_timer: bool, action: &'static str) -> Result<Published, StoreError> {
    if is_timer { Ok(Published::Duplicate) } else { Err(left_out(action)) }
}

pub(crate) fn left_out(action: &'static str) -> StoreError {
    StoreError::new(
        action,
        "a message was not written: a trigger of the outbox leaves it out",
        false,
    )
}

/// Publishes a value to a queue in the caller's transaction, as JSON.
///
/// The row commits or rolls back with everything else in the transaction, and
/// so does the wake for the subscribers. The queue is a string, or a [`Queue`] of
/// the type that is published.
///
/// The tables are those of [`Publisher::from_env`]. For other tables, or for options
/// (headers, delay, timer), use a [`Publisher`]. For bytes use [`Outgoing::raw`]: a
/// handler takes them as `&[u8]` or [`Bytes`](crate::Bytes). As a value, bytes become a
/// JSON list of numbers.
///
/// # Examples
/// ```no_run
/// # async fn place(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let mut tx = pool.begin().await?;
/// sqlx::query("INSERT INTO orders (id) VALUES (7)").execute(&mut *tx).await?;
/// outbox::publish(&mut tx, "orders", &serde_json::json!({ "id": 7 })).await?;
/// tx.commit().await?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// Whatever would abort the transaction is refused before the first statement.
/// After [`PublishError::Store`], roll the transaction back.
///
/// # Cancel safety
/// A dropped call may have inserted the row. Roll the transaction back, as with
/// any other statement in it.
pub async fn publish<T: Transaction + ?Sized, B: Serialize + ?Sized>(
    tx: &mut T,
    queue: impl QueueFor<B>,
    body: &B,
) -> Result<Published, PublishError> {
    Outgoing::new(queue, body).publish(tx).await
}

/// A transaction in which messages can be published: an sqlx transaction of PostgreSQL
/// or SQLite, or the [`Tx`](crate::Tx) that a handler was given. On SQLite, begin it
/// with `outbox::sqlite::begin`.
#[diagnostic::on_unimplemented(
    message = "a message is published in a transaction, and `{Self}` is not one",
    label = "not a transaction",
    note = "begin one with `pool.begin().await?`, on SQLite with `outbox::sqlite::begin(&pool).await?`, and pass `&mut tx`, not `&mut *tx`"
)]
pub trait Transaction: sealed::Transaction {}
impl<T: sealed::Transaction> Transaction for T {}

/// A connection from which rows can be read, in a transaction or not.
pub trait Connection: sealed::Connection {}
impl<T: sealed::Connection> Connection for T {}
