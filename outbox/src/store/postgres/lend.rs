//! Transactions that are lent to handlers.

use sqlx::{Postgres, Transaction};

use super::query;
use crate::error::StoreError;
use crate::extract::{Lender, Open, lends};
use crate::publish::{Prepared, sealed::Statements};
use crate::store::Lease;

impl lends::Lends for Postgres {
    async fn open(lender: &Lender) -> Result<Open<Self>, StoreError> {
        let Lender::Postgres(pool) = lender else { return Err(lender.is_another()) };
        let tx = pool.begin().await.map_err(StoreError::of("begin"))?;
        Ok(Open { tx, turn: None, elsewhere: false })
    }

    async fn ack(
        tx: &mut Transaction<'static, Self>,
        statements: &Statements,
        leases: &[Lease],
    ) -> Result<usize, StoreError> {
        let ids: Vec<i64> = leases.iter().map(|lease| lease.id).collect();
        let tokens: Vec<uuid::Uuid> = leases.iter().map(|lease| lease.token).collect();
        let statement = query(statements.postgres.ack()).bind(ids).bind(tokens);
        let acked = statement.fetch_all(&mut **tx).await.map_err(StoreError::of("ack"))?;
        Ok(acked.len())
    }

    async fn take(_: &mut Transaction<'static, Self>) -> Result<Vec<Prepared>, StoreError> {
        Err(StoreError::new("publish", "rows of PostgreSQL lie nowhere else", false))
    }
}
