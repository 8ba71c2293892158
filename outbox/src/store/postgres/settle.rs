//! The four settlements, each a statement for a whole batch.

use std::sync::Arc;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection as _, Executor as _, Row as _};

use super::runs::Runs;
use super::sleepers::notified;
use super::time::PgTime;
use super::{Commits, PgStore, Statement, WAITED};
use crate::error::StoreError;
use crate::message::row::delay_micros;
use crate::planted::planted;
use crate::store::{Death, Handled, Inserted, Landed, Lease, Release, Retry};

impl PgStore {
    pub(super) async fn ack_rows(&self, leases: &[Lease]) -> Result<Landed, StoreError> {
        self.delete("ack", leases, |lease| *lease).await
    }

    async fn delete<T>(
        &self,
        action: &'static str,
        items: &[T],
        lease: fn(&T) -> Lease,
    ) -> Result<Landed, StoreError> {
        let runs = Runs::of(items, lease, |_, _| true);
        self.write(action, &self.0.sql().ack, &runs, |statement| statement).await
    }

    pub(super) async fn ack_and_publish(
        &self,
        acks: &[Handled<'_>],
    ) -> Result<(Landed, Inserted), StoreError> {
        const ACTION: &str = "ack and publish";
        let runs = Runs::of(acks, |handled| handled.lease, |_, _| true);
        let of_each: Vec<_> = acks
            .iter()
            .flat_map(|handled| handled.messages.iter().map(|message| (handled.lease, message)))
            .collect();
        let sql = &self.0.sql().ack_publishing;
        let (channel, lock) = notified(&self.0.names);
        let written = self.written(ACTION, sql, &runs, |statement| {
            statement
                .bind(of_each.iter().map(|(lease, _)| lease.id).collect::<Vec<_>>())
                .bind(of_each.iter().map(|(lease, _)| lease.token).collect::<Vec<_>>())
                .bind(of_each.iter().map(|(_, m)| &*m.queue).collect::<Vec<_>>())
                .bind(of_each.iter().map(|(_, m)| &*m.payload).collect::<Vec<_>>())
                .bind(of_each.iter().map(|(_, m)| &*m.headers).collect::<Vec<_>>())
                .bind(of_each.iter().map(|(_, m)| m.due.at()).collect::<Vec<_>>())
                .bind(of_each.iter().map(|(_, m)| m.due.delay()).collect::<Vec<_>>())
                .bind(of_each.iter().map(|(_, m)| m.timer_id.as_deref()).collect::<Vec<_>>())
                .bind(of_each.iter().map(|(_, m)| m.extend).collect::<Vec<_>>())
                .bind(channel)
                .bind(lock)
        });
        let (landed, row) = written.await?;
        let inserted = inserted(&row).map_err(StoreError::of(ACTION))?;
        Ok((landed, inserted))
    }

    pub(super) async fn retry_rows(&self, retries: &[Retry]) -> Result<Landed, StoreError> {
        let runs = Runs::of(retries, |retry| retry.lease, |a, b| a.delay == b.delay);
        let delays: Vec<_> = runs.heads.iter().map(|retry| delay_micros(retry.delay)).collect();
        self.write("retry", &self.0.sql().retry, &runs, |statement| statement.bind(delays)).await
    }

    pub(super) async fn bury_rows(&self, deaths: &[Death]) -> Result<Landed, StoreError> {
        if self.0.names.dlq().is_none() {
            return self.delete("delete", deaths, |death| death.lease).await;
        }
        let runs = Runs::of(deaths, |death| death.lease, |a, b| texts(a) == texts(b));
        let texts: Vec<_> = runs.heads.iter().map(|death| texts(death)).collect();
        let text = |of: usize| texts.iter().map(|all| all[of]).collect::<Vec<_>>();
        let moved = async {
            let moved = self.write("dead-letter", &self.0.sql().bury, &runs, |statement| {
                statement.bind(text(0)).bind(text(1)).bind(text(2)).bind(text(3)).bind(text(4))
            });
            // Their table may lie on another disk. Whoever makes room there comes late.
            moved.await.map_err(StoreError::lasting_if_full)
        };
        if planted("letter-in-two-steps") {
            moved.await?;
            return self.delete("delete", deaths, |death| death.lease).await;
        }
        moved.await
    }

    pub(super) async fn release_rows(&self, releases: &[Release]) -> Result<Landed, StoreError> {
        let what = |one: &Release| (one.due_in, one.uncount, one.not_before());
        let runs = Runs::of(releases, |release| release.lease, |a, b| what(a) == what(b));
        let heads = || runs.heads.iter().map(|release| what(release));
        let delays: Vec<_> = heads().map(|(due_in, ..)| due_in.map(delay_micros)).collect();
        let uncounts: Vec<_> =
            heads().map(|(_, uncount, _)| i64::try_from(uncount).unwrap_or(i64::MAX)).collect();
        let firsts: Vec<_> = heads().map(|(.., first)| first.map(PgTime)).collect();
        self.write("release", &self.0.sql().release, &runs, |statement| {
            statement.bind(delays).bind(uncounts).bind(firsts)
        })
        .await
    }

    /// Runs a statement over runs of leases, which returns those it hit.
    pub(super) async fn write<T>(
        &self,
        action: &'static str,
        sql: &Arc<str>,
        runs: &Runs<'_, T>,
        bind_rest: impl FnOnce(Statement) -> Statement,
    ) -> Result<Landed, StoreError> {
        self.written(action, sql, runs, bind_rest).await.map(|(landed, _)| landed)
    }

    /// As [`PgStore::write`], with the rest of the answer.
    async fn written<T>(
        &self,
        action: &'static str,
        sql: &Arc<str>,
        runs: &Runs<'_, T>,
        bind_rest: impl FnOnce(Statement) -> Statement,
    ) -> Result<(Landed, PgRow), StoreError> {
        let statement = bind_rest(runs.bound(sql));
        let waited = self.1 == Commits::Waited;
        let row = self
            .bounded(action, |connection| Box::pin(settle(connection, statement, waited)))
            .await?;
        let landed = runs.landed(&row).map_err(StoreError::of(action))?;
        Ok((landed, row))
    }
}

/// Told by two arrays: queues, and their rows.
fn inserted(row: &PgRow) -> Result<Inserted, sqlx::Error> {
    let queues: Vec<String> = row.try_get::<Option<_>, _>(2)?.unwrap_or_default();
    let rows: Vec<i64> = row.try_get::<Option<_>, _>(3)?.unwrap_or_default();
    let rows = rows.into_iter().map(|rows| usize::try_from(rows).unwrap_or_default());
    Ok(queues.into_iter().zip(rows).collect())
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

/// Reason, kind, exception, note and fingerprint.
fn texts(death: &Death) -> [Option<&str>; 5] {
    [
        Some(death.reason.as_str()),
        death.error_kind.as_deref(),
        death.last_exception.as_deref(),
        death.note.as_deref(),
        death.fingerprint.as_deref(),
    ]
}
