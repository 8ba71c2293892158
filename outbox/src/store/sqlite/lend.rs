//! Transactions that are lent to handlers.

use std::sync::Arc;

use sqlx::{Sqlite, SqlitePool, Transaction};
use tokio::sync::{OnceCell, Semaphore};

use super::claim::read;
use super::query;
use crate::error::StoreError;
use crate::extract::{Lender, Open, lends};
use crate::message::Row;
use crate::publish::{Due, Prepared, sealed::Statements};
use crate::store::Lease;
use crate::store::names::TableNames;

/// SQLite has one writer at a time: those who wait for it wait in turn, and not
/// inside the database, which gives up after a while.
pub(crate) struct SqliteLender {
    pool: SqlitePool,
    turn: Arc<Semaphore>,
    /// The test broker's rows live in memory, so what is published in the
    /// transaction is taken out of it again. Set once its tables are made.
    elsewhere: Option<OnceCell<()>>,
}

impl SqliteLender {
    pub(crate) fn new(pool: SqlitePool) -> Self {
        Self { pool, turn: Arc::new(Semaphore::new(1)), elsewhere: None }
    }

    #[cfg(feature = "testing")]
    pub(crate) fn elsewhere(pool: SqlitePool) -> Self {
        Self { elsewhere: Some(OnceCell::new()), ..Self::new(pool) }
    }
}

impl lends::Lends for Sqlite {
    async fn open(lender: &Lender) -> Result<Open<Self>, StoreError> {
        let Lender::Sqlite(lender) = lender else { return Err(lender.is_another()) };
        if let Some(made) = &lender.elsewhere {
            let names = TableNames::default();
            made.get_or_try_init(|| super::schema::migrate(&lender.pool, &names)).await?;
        }
        // The semaphore is never closed.
        let turn = Arc::clone(&lender.turn).acquire_owned().await.ok();
        let tx = lender.pool.begin_with("BEGIN IMMEDIATE").await;
        let tx = tx.map_err(StoreError::of("begin"))?;
        Ok(Open { tx, turn, elsewhere: lender.elsewhere.is_some() })
    }

    async fn ack(
        tx: &mut Transaction<'static, Self>,
        statements: &Statements,
        leases: &[Lease],
    ) -> Result<usize, StoreError> {
        let mut acked = 0;
        for lease in leases {
            let statement = query(statements.sqlite.ack()).bind(lease.id).bind(lease.token);
            let done = statement.execute(&mut **tx).await.map_err(StoreError::of("ack"))?;
            acked += usize::from(done.rows_affected() == 1);
        }
        Ok(acked)
    }

    async fn take(tx: &mut Transaction<'static, Self>) -> Result<Vec<Prepared>, StoreError> {
        let sql: Arc<str> = include_str!("sql/take_all.sql").into();
        let rows = query(&sql).fetch_all(&mut **tx).await;
        let mut rows: Vec<Row> = rows
            .and_then(|rows| rows.iter().map(read).collect())
            .map_err(StoreError::of("take what was published"))?;
        rows.sort_by_key(|row| row.id);
        Ok(rows.into_iter().map(again).collect())
    }
}

/// A row as the message that it was.
fn again(row: Row) -> Prepared {
    let wait = row.next_attempt_at.duration_since(row.created_at).unwrap_or_default();
    Prepared {
        queue: row.queue,
        payload: row.payload,
        headers: row.headers.map(String::from).unwrap_or_default(),
        due: if wait.is_zero() { Due::Now } else { Due::In(wait) },
        timer_id: row.timer_id,
        extend: false,
    }
}
