//! Replays letters in a transaction of the caller.

use super::replay::{Replayed, replayed};
use super::{DeadLetters, Filter, Replay};
use crate::error::{Error, Result};
use crate::ops::Desk;
use crate::publish::sealed::{self, On};

/// A transaction that letters can be replayed in: a transaction of sqlx, on PostgreSQL or SQLite,
/// or the [`Tx`](crate::Tx) of a handler. On SQLite, begin it with `outbox::sqlite::begin`.
#[diagnostic::on_unimplemented(
    message = "letters are replayed in a transaction, and `{Self}` is not one",
    label = "not a transaction",
    note = "begin one with `pool.begin().await?`, on SQLite with `outbox::sqlite::begin(&pool).await?`, and pass `&mut tx`"
)]
pub trait ReplayTransaction: sealed::Transaction {}
#[diagnostic::do_not_recommend]
impl<T: sealed::Transaction> ReplayTransaction for T {}

impl DeadLetters {
    /// Works as [`replay`](Self::replay), but in the caller's transaction: the replay counts when
    /// that commits. On PostgreSQL it is one statement. Without a limit it takes up to 500 letters.
    ///
    /// A letter that is missing from the answer is not open, does not match the filter, is beyond
    /// the limit, or is locked by another transaction.
    ///
    /// It does not look at the database's clock: it also takes letters that failed later than it
    /// is now. It writes no fingerprints: a filter for one finds only letters that have theirs
    /// already.
    ///
    /// # Examples
    /// ```no_run
    /// # async fn again(letters: outbox::dlq::DeadLetters, pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    /// use outbox::dlq::{Filter, Replay};
    ///
    /// let mut tx = pool.begin().await?;
    /// sqlx::query("UPDATE orders SET amount = 5 WHERE id = 7").execute(&mut *tx).await?;
    /// letters.replay_in(&mut tx, &Filter::new().ids([7]), &Replay::new()).await?;
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - When an option makes no sense here: a canary and a rate need transactions of their own.
    /// - When the transaction is of another kind of database than the tables. In another database of the
    ///   same kind it puts back the letters that it finds there.
    /// - When the statement fails. Roll the transaction back then.
    ///
    /// # Cancel safety
    /// A dropped call may have replayed letters: roll the transaction back.
    pub async fn replay_in<T: ReplayTransaction + ?Sized>(
        &self,
        tx: &mut T,
        filter: &Filter,
        how: &Replay,
    ) -> Result<Vec<Replayed>> {
        how.check(filter)?;
        if how.canary.is_some() || how.per_second.is_some() {
            let why = "a canary and a rate need transactions of their own";
            return Err(Error::Config(vec![why.into()]));
        }
        // Nothing goes through the pool: the caller may hold its only connection, or the write
        // lock.
        let filter = filter.open();
        let limit = how.limit.unwrap_or(super::BATCH.into());
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let moved = match (&self.operator.desk, tx.on()) {
            #[cfg(feature = "postgres")]
            (Desk::Postgres(desk), On::Postgres(connection)) => {
                desk.replay_some(connection, &filter, None, how, limit, i64::MAX).await?
            }
            #[cfg(feature = "sqlite")]
            (Desk::Sqlite(desk), On::Sqlite(connection)) => {
                desk.replay_on(connection, &filter, how, limit).await?
            }
            #[allow(unreachable_patterns)]
            _ => {
                let why = "the transaction belongs to another database than the tables";
                return Err(Error::Config(vec![why.into()]));
            }
        };
        Ok(replayed(&moved))
    }
}
