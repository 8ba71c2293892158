//! Transactions that are lent to handlers.

use sqlx::Postgres;

use super::runs::Runs;
use crate::error::StoreError;
use crate::extract::{Ended, Lender, Open, lends};
use crate::publish::{Publisher, Tally};
use crate::store::{Handled, Lease};

/// Whatever the database's default is: the ack deletes a row that the extension of its lease
/// has changed since the handler's first statement, and under a snapshot of that one would fail.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

impl lends::Lends for Postgres {
    async fn open(lender: &Lender) -> Result<Open<Self>, StoreError> {
        let tx = lender.as_postgres()?.begin_with(BEGIN).await;
        let tx = tx.map_err(StoreError::of("begin"))?;
        Ok(Open {
            tx,
            #[cfg(feature = "sqlite")]
            turn: None,
            #[cfg(feature = "sqlite")]
            elsewhere: None,
        })
    }

    async fn settle(
        open: Open<Self>,
        publisher: &Publisher,
        acks: &[Handled<'_>],
    ) -> Result<Ended, StoreError> {
        let Open { mut tx, .. } = open;
        let runs = Runs::of(acks, |handled| handled.lease, |_, _| true);
        let ack = runs.bound(publisher.statements().postgres.ack());
        let acked = ack.fetch_one(&mut *tx).await.and_then(|row| runs.landed(&row));
        if acked.map_err(StoreError::of("ack"))?.contains(&false) {
            tx.rollback().await.map_err(StoreError::of("roll back"))?;
            return Ok(Ended::LeaseLost);
        }
        let mut tally = Tally::begin();
        for handled in acks {
            publisher.insert(&mut tx, handled.messages, &mut tally).await?;
        }
        tx.commit().await.map_err(StoreError::of("commit"))?;
        publisher.told(tally);
        Ok(Ended::Committed)
    }

    async fn roll_back(open: Open<Self>, _: &Publisher, _: &[Lease]) -> Result<(), StoreError> {
        open.tx.rollback().await.map_err(StoreError::of("roll back"))
    }
}
