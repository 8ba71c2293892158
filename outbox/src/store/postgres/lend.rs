//! Transactions that are lent to handlers.

use sqlx::Postgres;

use super::runs::Runs;
use crate::error::StoreError;
use crate::extract::{Ended, Lender, Open, lends};
use crate::publish::{Publisher, Tally};
use crate::store::{Handled, Lease};

impl lends::Lends for Postgres {
    async fn open(lender: &Lender) -> Result<Open<Self>, StoreError> {
        let tx = lender.as_postgres()?.begin().await.map_err(StoreError::of("begin"))?;
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
        if acked.map_err(unacked)?.contains(&false) {
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

/// A transaction in which a statement had failed before, though the handler said nothing
/// of it, or which it left idle for longer than the server allows, would not be any better
/// the next time.
fn unacked(error: sqlx::Error) -> StoreError {
    let code = error.as_database_error().and_then(|refused| refused.code());
    let handlers = code.is_some_and(|code| matches!(&*code, "25P02" | "25P03"));
    let failed = StoreError::of("ack")(error);
    StoreError { transient: failed.transient && !handlers, ..failed }
}
