//! Where lent transactions come from, and how they end.

use std::sync::Arc;

use sqlx::{Database, Transaction};
use tokio::sync::OwnedSemaphorePermit;

use super::tx::Ended;
use crate::error::StoreError;
use crate::publish::{self, Prepared, Publisher};
use crate::store::{Handled, Lease};

/// The pool of the app, as its store lends from it.
#[derive(Clone)]
pub(crate) enum Lender {
    #[cfg(feature = "postgres")]
    Postgres(sqlx::PgPool),
    #[cfg(feature = "sqlite")]
    Sqlite(Arc<crate::store::sqlite::SqliteLender>),
}

impl Lender {
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
    use super::{Database, Future, Lease, Lender, Open, Prepared, StoreError, Transaction, publish};

    #[diagnostic::on_unimplemented(
        message = "`Tx<{Self}>` cannot be lent",
        label = "not a database of an outbox",
        note = "write `Tx<sqlx::Postgres>` or `Tx<sqlx::Sqlite>`"
    )]
    pub trait Lends: Database {
        /// Begins one.
        fn open(lender: &Lender) -> impl Future<Output = Result<Open<Self>, StoreError>> + Send;

        /// Deletes the rows of these leases and says how many there were.
        fn ack(
            tx: &mut Transaction<'static, Self>,
            statements: &publish::sealed::Statements,
            leases: &[Lease],
        ) -> impl Future<Output = Result<usize, StoreError>> + Send;

        /// Takes out what was published, for rows that live elsewhere.
        fn take(
            tx: &mut Transaction<'static, Self>,
        ) -> impl Future<Output = Result<Vec<Prepared>, StoreError>> + Send;
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

impl<DB: sealed::Lends> Open<DB>
where
    Transaction<'static, DB>: publish::Transaction,
{
    /// Acks, publishes and commits, or rolls back.
    pub(super) async fn settle(
        self,
        publisher: &Publisher,
        acks: &[Handled<'_>],
    ) -> Result<Ended, StoreError> {
        let Self { mut tx, turn, elsewhere } = self;
        if elsewhere {
            let published = DB::take(&mut tx).await?;
            tx.commit().await.map_err(StoreError::of("commit"))?;
            return Ok(Ended::Elsewhere(published));
        }
        let leases: Vec<_> = acks.iter().map(|handled| handled.lease).collect();
        if DB::ack(&mut tx, publisher.statements(), &leases).await? < leases.len() {
            tx.rollback().await.map_err(StoreError::of("roll back"))?;
            return Ok(Ended::LeaseLost);
        }
        for handled in acks {
            publisher.insert(&mut tx, handled.messages).await?;
        }
        tx.commit().await.map_err(StoreError::of("commit"))?;
        drop(turn);
        Ok(Ended::Committed)
    }
}
