//! The four settlements, each a statement for a whole batch.

use std::collections::HashSet;
use std::sync::Arc;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection as _, Executor as _, Row as _};
use uuid::Uuid;

use super::sleepers::lock_of_sleepers;
use super::time::PgTime;
use super::{Commits, PgStore, Statement, WAITED, query};
use crate::error::StoreError;
use crate::message::row::delay_micros;
use crate::store::{Death, Handled, Landed, Lease, Release, Retry};

impl PgStore {
    pub(super) async fn ack_rows(&self, leases: &[Lease]) -> Result<Landed, StoreError> {
        self.write("ack", &self.0.sql.ack, leases, |statement| statement).await
    }

    pub(super) async fn ack_and_publish(&self, acks: &[Handled<'_>]) -> Result<Landed, StoreError> {
        let leases: Vec<_> = acks.iter().map(|handled| handled.lease).collect();
        let of_each: Vec<_> = acks
            .iter()
            .flat_map(|handled| handled.messages.iter().map(|message| (handled.lease, message)))
            .collect();
        let channel = self.0.names.channel();
        self.write("ack and publish", &self.0.sql.ack_publishing, &leases, |statement| {
            statement
                .bind(of_each.iter().map(|(lease, _)| lease.id).collect::<Vec<_>>())
                .bind(of_each.iter().map(|(lease, _)| lease.token).collect::<Vec<_>>())
                .bind(of_each.iter().map(|(_, m)| m.queue.clone()).collect::<Vec<_>>())
                .bind(of_each.iter().map(|(_, m)| m.payload.to_vec()).collect::<Vec<_>>())
                .bind(of_each.iter().map(|(_, m)| m.headers.clone()).collect::<Vec<_>>())
                .bind(of_each.iter().map(|(_, m)| m.due.at()).collect::<Vec<_>>())
                .bind(of_each.iter().map(|(_, m)| m.due.delay()).collect::<Vec<_>>())
                .bind(of_each.iter().map(|(_, m)| m.timer_id.clone()).collect::<Vec<_>>())
                .bind(of_each.iter().map(|(_, m)| m.extend).collect::<Vec<_>>())
                .bind(channel)
                .bind(lock_of_sleepers(&self.0.names))
        })
        .await
    }

    pub(super) async fn retry_rows(&self, retries: &[Retry]) -> Result<Landed, StoreError> {
        let leases: Vec<_> = retries.iter().map(|retry| retry.lease).collect();
        let delays: Vec<_> = retries.iter().map(|retry| delay_micros(retry.delay)).collect();
        self.write("retry", &self.0.sql.retry, &leases, |statement| statement.bind(delays)).await
    }

    pub(super) async fn bury_rows(&self, deaths: &[Death]) -> Result<Landed, StoreError> {
        let leases: Vec<_> = deaths.iter().map(|death| death.lease).collect();
        if self.0.names.dlq().is_none() {
            return self.write("delete", &self.0.sql.ack, &leases, |statement| statement).await;
        }
        let texts =
            |text: fn(&Death) -> Option<String>| deaths.iter().map(text).collect::<Vec<_>>();
        self.write("dead-letter", &self.0.sql.bury, &leases, |statement| {
            statement
                .bind(texts(|death| Some(death.reason.as_str().to_owned())))
                .bind(texts(|death| death.error_kind.clone()))
                .bind(texts(|death| death.last_exception.clone()))
                .bind(texts(|death| death.note.clone()))
        })
        .await
    }

    pub(super) async fn release_rows(&self, releases: &[Release]) -> Result<Landed, StoreError> {
        let leases: Vec<_> = releases.iter().map(|release| release.lease).collect();
        let delays: Vec<Option<i64>> =
            releases.iter().map(|release| release.due_in.map(delay_micros)).collect();
        let uncounts: Vec<_> = releases.iter().map(|release| i64::from(release.uncount)).collect();
        let firsts: Vec<Option<PgTime>> =
            releases.iter().map(|release| release.not_before().map(PgTime)).collect();
        self.write("release", &self.0.sql.release, &leases, |statement| {
            statement.bind(delays).bind(uncounts).bind(firsts)
        })
        .await
    }

    /// Runs a statement over pairs of id and token that returns the pairs it hit,
    /// in two arrays.
    pub(super) async fn write(
        &self,
        action: &'static str,
        sql: &Arc<str>,
        leases: &[Lease],
        bind_rest: impl FnOnce(Statement) -> Statement,
    ) -> Result<Landed, StoreError> {
        let ids: Vec<i64> = leases.iter().map(|lease| lease.id).collect();
        let tokens: Vec<Uuid> = leases.iter().map(|lease| lease.token).collect();
        let statement = bind_rest(query(sql).bind(ids).bind(tokens));
        let waited = self.1 == Commits::Waited;
        let row = self
            .bounded(action, |connection| Box::pin(settle(connection, statement, waited)))
            .await?;
        landed(&row, leases).map_err(StoreError::of(action))
    }
}

/// `waited`: on a connection whose commits are not.
async fn settle(
    connection: &mut PgConnection,
    statement: Statement,
    waited: bool,
) -> Result<PgRow, sqlx::Error> {
    if !waited {
        return statement.fetch_one(connection).await;
    }
    let mut tx = connection.begin().await?;
    tx.execute(WAITED).await?;
    let row = statement.fetch_one(&mut *tx).await?;
    tx.commit().await?;
    Ok(row)
}

/// Which pairs the statement hit.
pub(super) fn landed(row: &PgRow, leases: &[Lease]) -> Result<Landed, sqlx::Error> {
    let ids: Vec<i64> = row.try_get::<Option<_>, _>(0)?.unwrap_or_default();
    if ids.len() == leases.len() {
        return Ok(vec![true; leases.len()]);
    }
    let tokens: Vec<Uuid> = row.try_get::<Option<_>, _>(1)?.unwrap_or_default();
    let pairs = ids.into_iter().zip(tokens);
    let hit: HashSet<_> = pairs.map(|(id, token)| Lease { id, token }).collect();
    Ok(leases.iter().map(|lease| hit.contains(lease)).collect())
}
