//! The settlements that publish nothing, each a statement for a whole batch.

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
        let all = Runs::of(items, lease, |_, _| true);
        self.write(action, &self.0.sql.ack, &all, |statement, _| statement).await
    }

    pub(super) async fn ack_and_publish(
        &self,
        acks: &[Handled<'_>],
    ) -> Result<(Landed, Inserted), StoreError> {
        const ACTION: &str = "ack and publish";
        let all = Runs::of(acks, |handled| handled.lease, |_, _| true);
        let of_each: Vec<_> = acks
            .iter()
            .flat_map(|handled| handled.messages.iter().map(|message| (handled.lease, message)))
            .collect();
        let sql = &self.0.sql.ack_publishing;
        let (channel, locks) = notified(&self.0.names);
        let written = self.written(ACTION, sql, &all, |statement, _| {
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
                .bind(channel.clone())
                .bind(locks.map(|locks| locks.start))
        });
        let (landed, rows) = written.await?;
        let inserted: Result<Vec<_>, _> = rows.iter().map(inserted).collect();
        Ok((landed, inserted.map_err(StoreError::of(ACTION))?.concat()))
    }

    pub(super) async fn retry_rows(&self, retries: &[Retry]) -> Result<Landed, StoreError> {
        let all = Runs::of(retries, |retry| retry.lease, |a, b| a.delay == b.delay);
        self.write("retry", &self.0.sql.retry, &all, |statement, heads| {
            statement.bind(heads.iter().map(|it| delay_micros(it.delay)).collect::<Vec<_>>())
        })
        .await
    }

    pub(super) async fn bury_rows(&self, deaths: &[Death<'_>]) -> Result<Landed, StoreError> {
        if self.0.names.dlq().is_none() {
            return self.delete("delete", deaths, |death| death.lease).await;
        }
        let all = Runs::of(deaths, |death| death.lease, |a, b| a.texts() == b.texts());
        let moved = async {
            let moved = self.write("dead-letter", &self.0.sql.bury, &all, |statement, heads| {
                let text = |of: usize| heads.iter().map(|it| it.texts()[of]).collect::<Vec<_>>();
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
        let all = Runs::of(releases, |release| release.lease, |a, b| what(a) == what(b));
        self.write("release", &self.0.sql.release, &all, |statement, heads| {
            let heads = || heads.iter().map(|release| what(release));
            let delays: Vec<_> = heads().map(|(due_in, ..)| due_in.map(delay_micros)).collect();
            let uncounts: Vec<_> =
                heads().map(|(_, uncount, _)| i64::try_from(uncount).unwrap_or(i64::MAX)).collect();
            let firsts: Vec<_> = heads().map(|(.., first)| first.map(PgTime)).collect();
            statement.bind(delays).bind(uncounts).bind(firsts)
        })
        .await
    }

    /// Runs a statement over runs of leases, which returns those it hit.
    pub(super) async fn write<T>(
        &self,
        action: &'static str,
        sql: &Arc<str>,
        all: &[Runs<'_, T>],
        bind_rest: impl Fn(Statement, &[&T]) -> Statement,
    ) -> Result<Landed, StoreError> {
        self.written(action, sql, all, bind_rest).await.map(|(landed, _)| landed)
    }

    /// As [`PgStore::write`], with the whole of each answer.
    async fn written<T>(
        &self,
        action: &'static str,
        sql: &Arc<str>,
        all: &[Runs<'_, T>],
        bind_rest: impl Fn(Statement, &[&T]) -> Statement,
    ) -> Result<(Landed, Vec<PgRow>), StoreError> {
        let waited = self.1 == Commits::Waited;
        let (mut landed, mut rows) = (vec![false; all.iter().map(Runs::len).sum()], Vec::new());
        for runs in all {
            let statement = bind_rest(runs.bound(sql), &runs.heads);
            let row = self
                .bounded(action, |connection| Box::pin(settle(connection, statement, waited)))
                .await
                // Of two statements the first has been done: whoever asks again may be told
                // that its rows are gone, and the other is told again why it was refused.
                .map_err(|failed| StoreError {
                    transient: failed.transient || !rows.is_empty(),
                    perhaps_done: failed.perhaps_done || !rows.is_empty(),
                    ..failed
                })?;
            runs.note(&row, &mut landed).map_err(StoreError::of(action))?;
            rows.push(row);
        }
        Ok((landed, rows))
    }
}

/// Told by two arrays: queues, and their rows.
fn inserted(row: &PgRow) -> Result<Inserted, sqlx::Error> {
    let queues: Vec<String> = row.try_get::<Option<_>, _>(1)?.unwrap_or_default();
    let rows: Vec<i64> = row.try_get::<Option<_>, _>(2)?.unwrap_or_default();
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
