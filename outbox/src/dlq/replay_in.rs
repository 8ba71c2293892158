//! Letters are put back in a transaction of the caller.

use super::replay::{Put, Replayed, replayed};
use super::{DeadLetters, Filter, Replay};
use crate::error::{Error, Result};

/// A transaction that letters can be replayed in: one of sqlx's, of PostgreSQL or SQLite, or the
/// [`Tx`](crate::Tx) that a handler was given. On SQLite begin it with `outbox::sqlite::begin`.
pub trait ReplayTransaction: sealed::Replays {}
impl<T: sealed::Replays> ReplayTransaction for T {}

pub(crate) mod sealed {
    use std::future::Future;

    use super::Put;
    use crate::dlq::{DeadLetters, Filter, LetterPosition};
    use crate::error::StoreError;

    /// A letter's place each, and the row that its message is in now.
    pub(crate) type Moved = Vec<(LetterPosition, Option<i64>)>;

    #[diagnostic::on_unimplemented(
        message = "letters are replayed in a transaction, and `{Self}` is none",
        label = "not a transaction",
        note = "begin one with `pool.begin().await?`, on SQLite with `outbox::sqlite::begin(&pool).await?`, and pass `&mut tx`"
    )]
    pub trait Replays: Send {
        /// `None`: the tables are another database's.
        fn replay(
            &mut self,
            letters: &DeadLetters,
            filter: &Filter,
            put: &Put,
            limit: i64,
        ) -> impl Future<Output = Option<Result<Moved, StoreError>>> + Send;
    }
}

/// Has letters replayed in the transactions of a driver, by the desk that is named like it.
macro_rules! replays {
    ($desk:ident: $($transaction:ty),+) => {
        $(impl $crate::dlq::sealed::Replays for $transaction {
            async fn replay(
                &mut self,
                letters: &$crate::dlq::DeadLetters,
                filter: &$crate::dlq::Filter,
                put: &$crate::dlq::Put,
                limit: i64,
            ) -> Option<Result<Moved>> {
                match &letters.operator.desk {
                    $crate::ops::Desk::$desk(desk) => {
                        Some(desk.replay_on(self, filter, None, put, limit).await)
                    }
                    #[allow(unreachable_patterns)]
                    _ => None,
                }
            }
        })+
    };
}
pub(crate) use replays;

impl DeadLetters {
    /// As [`replay`](Self::replay), in the caller's transaction, with one statement on
    /// PostgreSQL: it counts when that commits. Without a limit, up to 500 letters. A letter that is
    /// missing from the answer is not open, does not match the filter, or is locked by somebody
    /// else.
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
    /// When an option makes no sense here, or the transaction is another database's;
    /// when the statement fails, the transaction is to be rolled back.
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
        // Nothing from the pool: the caller may have its only connection, or all writing.
        let filter = filter.open();
        let limit = how.limit.unwrap_or(super::BATCH.into());
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let put: Put = how.put();
        let Some(done) = tx.replay(self, &filter, &put, limit).await else {
            let why = "the transaction is of another database than the tables";
            return Err(Error::Config(vec![why.into()]));
        };
        Ok(replayed(&done?))
    }
}
