//! Transactions that are lent to handlers.

use sqlx::Postgres;
use uuid::Uuid;

use super::query;
use super::settle::landed;
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
        let leases: Vec<Lease> = acks.iter().map(|handled| handled.lease).collect();
        let ids: Vec<i64> = leases.iter().map(|lease| lease.id).collect();
        let tokens: Vec<Uuid> = leases.iter().map(|lease| lease.token).collect();
        let ack = query(publisher.statements().postgres.ack()).bind(ids).bind(tokens);
        let acked = ack.fetch_one(&mut *tx).await.and_then(|row| landed(&row, &leases));
        if acked.map_err(StoreError::of("ack"))?.contains(&false) {
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
