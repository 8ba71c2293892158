//! Taking rows, and when to look again.

use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::time::PgTime;
use super::{PgStore, query};
use crate::error::StoreError;
use crate::message::Row;
use crate::message::row::delay_micros;
use crate::store::{Before, Claim, Claimed, Extend, Landed};

impl PgStore {
    pub(super) async fn claim_rows(&self, claim: &Claim) -> Result<Vec<Claimed>, StoreError> {
        let statement = query(&self.0.sql.claim)
            .bind(claim.queues.to_vec())
            .bind(i64::try_from(claim.limit).unwrap_or(i64::MAX))
            .bind(delay_micros(claim.lease_ttl))
            .bind(claim.token);
        let rows = self.fetch_all("claim", statement).await?;
        let mut claimed = rows
            .iter()
            .map(claimed)
            .collect::<Result<Vec<_>, _>>()
            .map_err(StoreError::of("read claimed rows"))?;
        // RETURNING promises no order.
        claimed.sort_by_key(|one| (one.row.next_attempt_at, one.row.id));
        Ok(claimed)
    }

    pub(super) async fn wait_for_next(
        &self,
        queues: &[String],
        lease_ttl: Duration,
    ) -> Result<Option<Duration>, StoreError> {
        let statement =
            query(&self.0.sql.next_due).bind(queues.to_vec()).bind(delay_micros(lease_ttl));
        let rows = self.fetch_all("next due time", statement).await?;
        let micros: Option<i64> = match rows.first() {
            Some(row) => row.try_get(0).map_err(StoreError::of("next due time"))?,
            None => None,
        };
        Ok(micros.map(|us| Duration::from_micros(us.max(0).unsigned_abs())))
    }

    pub(super) async fn extend_leases(&self, leases: &[Extend]) -> Result<Landed, StoreError> {
        let held: Vec<_> = leases.iter().map(|extend| extend.lease).collect();
        let tokens: Vec<Uuid> = leases.iter().map(|extend| extend.token).collect();
        self.write("extend", &self.0.sql.extend, &held, |statement| statement.bind(tokens)).await
    }
}

fn claimed(row: &PgRow) -> Result<Claimed, sqlx::Error> {
    Ok(Claimed { row: read(row)?, before: Before::of(row.try_get(13)?) })
}

/// The columns of a row, in the order in which every statement names them.
pub(super) fn read(row: &PgRow) -> Result<Row, sqlx::Error> {
    let count = |index| row.try_get::<i64, _>(index).map(|count| count.max(0).unsigned_abs());
    let time = |index| row.try_get::<PgTime, _>(index).map(|time| time.0);
    let maybe = |index| row.try_get::<Option<PgTime>, _>(index).map(|at| at.map(|time| time.0));
    Ok(Row {
        id: row.try_get(0)?,
        queue: row.try_get(1)?,
        payload: row.try_get::<Vec<u8>, _>(2)?.into(),
        headers: row.try_get(3)?,
        attempts_count: count(4)?,
        deliveries_count: count(5)?,
        created_at: time(6)?,
        next_attempt_at: time(7)?,
        first_attempt_at: maybe(8)?,
        last_attempt_at: maybe(9)?,
        acquired_at: maybe(10)?,
        acquired_token: row.try_get(11)?,
        timer_id: row.try_get(12)?,
    })
}
