//! [`Store`] for PostgreSQL. A settlement is one statement for a whole batch. Claims and gauges
//! have files of their own.

use std::sync::Arc;

use sqlx::postgres::{PgConnection, PgPoolOptions, PgRow};
use sqlx::{Connection as _, Executor as _, Row as _};

use super::listen::PgWakes;
use super::runs::Runs;
use super::sleepers::notified;
use super::time::PgTime;
use super::validate::Look;
use super::{CONNECT_LIMIT, Commits, MAX_CONNECTIONS, PgStore, Statement, WAITED, query};
use crate::error::StoreError;
use crate::message::row::delay_micros;
use crate::publish::in_lock_order;
use crate::schema::SchemaMismatch;
use crate::store::counted::counted;
use crate::store::names::Notify;
use crate::store::{
    Claim, Connections, Death, Depth, Extend, Handled, Inserted, Landed, Lease, Release, Result,
    Retry, Store, Taken,
};

impl Store for PgStore {
    type Wakes = PgWakes;

    async fn claim(&self, claims: &[Claim]) -> Result<Vec<Taken>> {
        self.claim_rows(claims).await
    }

    async fn ack(&self, leases: &[Lease]) -> Result<Landed> {
        self.delete("ack", leases, |lease| *lease).await
    }

    async fn ack_publishing(&self, acks: &[Handled<'_>]) -> Result<(Landed, Inserted)> {
        const ACTION: &str = "ack and publish";
        let all = Runs::of(acks, |handled| handled.lease, |_, _| true);
        let mut of_each: Vec<_> = acks
            .iter()
            .flat_map(|handled| handled.messages.iter().map(|message| (handled.lease, message)))
            .collect();
        in_lock_order(&mut of_each, |(_, message)| message.named());
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
        let inserted: sqlx::Result<Vec<_>> = rows.iter().map(inserted).collect();
        Ok((landed, inserted.map_err(StoreError::of(ACTION))?.concat()))
    }

    async fn retry(&self, retries: &[Retry]) -> Result<Landed> {
        let all = Runs::of(retries, |retry| retry.lease, |a, b| a.delay == b.delay);
        self.write("retry", &self.0.sql.retry, &all, |statement, heads| {
            statement.bind(heads.iter().map(|it| delay_micros(it.delay)).collect::<Vec<_>>())
        })
        .await
    }

    async fn bury(&self, deaths: &[Death<'_>]) -> Result<Landed> {
        if self.0.names.dlq().is_none() {
            return self.delete("delete", deaths, |death| death.lease).await;
        }
        let all = Runs::of(deaths, |death| death.lease, |a, b| a.texts() == b.texts());
        let moved = self.write("dead-letter", &self.0.sql.bury, &all, |statement, heads| {
            let text = |of: usize| heads.iter().map(|it| it.texts()[of]).collect::<Vec<_>>();
            statement.bind(text(0)).bind(text(1)).bind(text(2)).bind(text(3)).bind(text(4))
        });
        // The dead-letter table may lie on another disk, and whoever makes room there comes late.
        moved.await.map_err(StoreError::lasting_if_full)
    }

    async fn release(&self, releases: &[Release]) -> Result<Landed> {
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

    async fn extend(&self, leases: &[Extend]) -> Result<Landed> {
        let all = Runs::of(leases, |extend| extend.lease, |a, b| a.token == b.token);
        self.write("extend", &self.0.sql.extend, &all, |statement, heads| {
            statement.bind(heads.iter().map(|extend| extend.token).collect::<Vec<_>>())
        })
        .await
    }

    async fn held(&self, leases: &[Lease]) -> Result<Landed> {
        let all = Runs::of(leases, |lease| *lease, |_, _| true);
        self.write("look at leases", &self.0.sql.held, &all, |statement, _| statement).await
    }

    async fn abandon(&self, claim: &Claim) -> Result<u64> {
        let statement = query(&self.0.sql.abandon)
            .bind(claim.queues.to_vec())
            .bind(claim.token)
            .bind(i64::try_from(claim.most_deliveries()).unwrap_or(i64::MAX))
            .bind(claim.after.map(|after| PgTime(after.due)))
            .bind(claim.after.map(|after| after.id));
        let done = self.bounded("abandon", |connection| Box::pin(statement.execute(connection)));
        Ok(done.await?.rows_affected())
    }

    async fn listen(&self) -> Result<Self::Wakes> {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(CONNECT_LIMIT)
            .connect_lazy_with((*self.options()).clone());
        self.listen_on(Some(pool.clone()));
        PgWakes::connect(&pool, &self.0.names).await
    }

    fn wakes_only_sleepers(&self) -> bool {
        self.0.names.notify() != Notify::Always
    }

    fn keeps_dead_letters(&self) -> bool {
        self.0.names.dlq().is_some()
    }

    fn durable(&self) -> Self {
        let commits = match self.1 {
            Commits::Async => Commits::Waited,
            commits => commits,
        };
        Self(Arc::clone(&self.0), commits)
    }

    async fn validate(&self, autovacuum: bool) -> Result<SchemaMismatch> {
        let names = self.0.names.clone();
        let looks = self.bounded("look at the tables", |connection| {
            Box::pin(async move {
                let mut look = Look::new(connection, &names, true);
                look.tables(autovacuum).await?;
                look.rights().await?;
                Ok(look.found)
            })
        });
        let found = looks.await?;
        self.0.sql.set(found.unpausable);
        Ok(found)
    }

    async fn ping(&self) -> Result<()> {
        self.bounded("ping", |connection| connection.execute("SELECT 1")).await.map(drop)
    }

    async fn depths(&self, queues: &[String], most: usize) -> Result<Vec<Depth>> {
        self.depths_of(queues, most).await
    }

    fn connections(&self) -> Connections {
        let (open, idle) = counted(&self.0.pool);
        let idle = open.min(idle + self.0.kept.len());
        Connections { open, idle, most: MAX_CONNECTIONS as usize }
    }

    async fn close(&self) {
        self.0.vacuum.close();
        self.0.kept.close();
        let listening = self.listen_on(None);
        let listener = async {
            if let Some(pool) = &listening {
                pool.close().await;
            }
        };
        tokio::join!(listener, self.0.pool.close());
    }
}

impl PgStore {
    async fn delete<T>(
        &self,
        action: &'static str,
        items: &[T],
        lease: fn(&T) -> Lease,
    ) -> Result<Landed> {
        let all = Runs::of(items, lease, |_, _| true);
        self.write(action, &self.0.sql.ack, &all, |statement, _| statement).await
    }

    /// Runs a statement over runs of leases. Its answer says which leases it hit.
    async fn write<T>(
        &self,
        action: &'static str,
        sql: &Arc<str>,
        all: &[Runs<'_, T>],
        bind_rest: impl Fn(Statement, &[&T]) -> Statement,
    ) -> Result<Landed> {
        self.written(action, sql, all, bind_rest).await.map(|(landed, _)| landed)
    }

    /// As [`PgStore::write`], with the whole of each answer.
    async fn written<T>(
        &self,
        action: &'static str,
        sql: &Arc<str>,
        all: &[Runs<'_, T>],
        bind_rest: impl Fn(Statement, &[&T]) -> Statement,
    ) -> Result<(Landed, Vec<PgRow>)> {
        let waited = self.1 == Commits::Waited;
        let (mut landed, mut rows) = (vec![false; all.iter().map(Runs::len).sum()], Vec::new());
        for runs in all {
            let statement = bind_rest(runs.bound(sql), &runs.heads);
            let row = self
                .bounded(action, |connection| Box::pin(settle(connection, statement, waited)))
                .await
                // The statements before this one have been done. Whoever asks again may be told
                // that their rows are gone, and is told again why this one was refused.
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

/// Reads two arrays: the queues, and how many rows each got.
fn inserted(row: &PgRow) -> sqlx::Result<Inserted> {
    let queues: Vec<String> = row.try_get::<Option<_>, _>(1)?.unwrap_or_default();
    let rows: Vec<i64> = row.try_get::<Option<_>, _>(2)?.unwrap_or_default();
    let rows = rows.into_iter().map(|rows| usize::try_from(rows).unwrap_or_default());
    Ok(queues.into_iter().zip(rows).collect())
}

/// `waited`: waits for the commit, on a connection that does not do so by itself.
async fn settle(
    connection: &mut PgConnection,
    statement: Statement,
    waited: bool,
) -> sqlx::Result<PgRow> {
    if !waited {
        return statement.fetch_one(connection).await;
    }
    let mut tx = connection.begin().await?;
    tx.execute(WAITED).await?;
    let row = statement.fetch_one(&mut *tx).await?;
    tx.commit().await?;
    Ok(row)
}
