//! Transactions that are lent to handlers.

use sqlx::Postgres;
use uuid::Uuid;

use super::query;
use crate::error::StoreError;
use crate::extract::{Ended, Lender, Open, lends};
use crate::publish::Publisher;
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
        let ids: Vec<i64> = acks.iter().map(|handled| handled.lease.id).collect();
        let tokens: Vec<Uuid> = acks.iter().map(|handled| handled.lease.token).collect();
        let ack = query(publisher.statements().postgres.ack()).bind(ids).bind(tokens);
        let acked = ack.fetch_all(&mut *tx).await.map_err(StoreError::of("ack"))?;
        if acked.len() < acks.len() {
            tx.rollback().await.map_err(StoreError::of("roll back"))?;
            return Ok(Ended::LeaseLost);
        }
        for handled in acks {
            publisher.insert(&mut tx, handled.messages).await?;
        }
        tx.commit().await.map_err(StoreError::of("commit"))?;
        Ok(Ended::Committed)
    }

    async fn roll_back(open: Open<Self>, _: &Publisher, _: &[Lease]) -> Result<(), StoreError> {
        open.tx.rollback().await.map_err(StoreError::of("roll back"))
    }
}
