//! What a case has of its own: tables, a proxy, a pool through it, and the server's
//! account of what happened.

use std::time::Duration;

use outbox::schema::{Database, sql};
use outbox::{Outgoing, Publisher, TableNames};
use outbox_tests::backend::unique;
use outbox_tests::wait::eventually;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor};

use super::proxy::Proxy;

pub struct Stage {
    pub names: TableNames,
    pub publisher: Publisher,
    pub proxy: Proxy,
    /// Through the proxy: the pool under test.
    pub pool: PgPool,
    /// The name by which the server knows its sessions, and those of an app on it.
    name: String,
    /// Past the proxy.
    pub direct: PgPool,
}

impl Stage {
    /// On this database, with tables.
    pub async fn set(database: &PgConnectOptions) -> Self {
        let stage = Self::bare(database).await;
        stage.exec(sql(Database::Postgres, &stage.names)).await;
        stage.watched().await;
        stage
    }

    /// With none so far.
    pub async fn bare(database: &PgConnectOptions) -> Self {
        let name = unique("sweep");
        let own = database.clone().options([("search_path", &name)]);
        let proxy = Proxy::before(&own).await;
        let through = proxy.options(&own).application_name(&name);
        let one = PgPoolOptions::new().max_connections(1);
        let direct = one.clone().connect_lazy_with(own.application_name("direct"));
        // Two: what a case leaves on the one must not keep it from going on.
        let patience = Duration::from_secs(20);
        let two = PgPoolOptions::new().max_connections(2).acquire_timeout(patience);
        let names = TableNames::new("outbox").unwrap().in_schema(&name).unwrap();
        let names = names.with_dlq("outbox_dlq").unwrap();
        let publisher = Publisher::new(names.clone());
        let pool = two.connect_lazy_with(through);
        let stage = Self { names, publisher, proxy, pool, name, direct };
        stage.exec(include_str!("audit.sql").replace("{schema}", &stage.name)).await;
        stage
    }

    /// Its tables are watched from now on.
    pub async fn watched(&self) {
        self.exec(include_str!("triggers.sql")).await;
    }

    pub async fn exec(&self, sql: impl Into<String>) {
        self.direct.execute(AssertSqlSafe(sql.into())).await.unwrap();
    }

    pub async fn int(&self, sql: impl Into<String>) -> i64 {
        let sql = AssertSqlSafe(sql.into());
        sqlx::query_scalar(sql).fetch_one(&self.direct).await.unwrap()
    }

    pub async fn rows(&self) -> i64 {
        self.int("SELECT count(*) FROM outbox WHERE queue = 'q'").await
    }

    /// Messages of the queue `q`, each beside its row of the caller, past the proxy.
    pub async fn publish(&self, numbers: impl IntoIterator<Item = i64>) {
        for n in numbers {
            self.send(n, Outgoing::new("q", &n)).await;
        }
    }

    /// One of them.
    pub async fn send(&self, n: i64, message: Outgoing) {
        let mut tx = self.direct.begin().await.unwrap();
        sqlx::query("INSERT INTO biz VALUES ($1)").bind(n).execute(&mut *tx).await.unwrap();
        self.publisher.send(&mut tx, message).await.unwrap();
        tx.commit().await.unwrap();
    }

    /// No session of the case is left inside a transaction, however the calls ended.
    pub async fn is_outside_transactions(&self) {
        let inside = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}'
             AND state LIKE 'idle in transaction%'",
            self.name
        );
        eventually("no session idles in a transaction", async || self.int(&*inside).await == 0)
            .await;
    }

    /// Its sessions that wait for a lock.
    pub async fn waits(&self) -> i64 {
        let waits = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}'
             AND wait_event_type = 'Lock'",
            self.name
        );
        self.int(waits).await
    }

    /// Its sessions whose last statement was no claim: at least that of the listener.
    pub async fn claimless(&self) -> i64 {
        let others = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}'
             AND query NOT LIKE '-- Leases due rows%'",
            self.name
        );
        self.int(others).await
    }

    /// What must not have happened.
    pub async fn violations(&self, lease: Duration, leased_deletes: bool) -> Vec<String> {
        let sql = include_str!("violations.sql")
            .replace("{lease}", &lease.as_millis().to_string())
            .replace("{leased_deletes}", &leased_deletes.to_string());
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&self.direct).await.unwrap()
    }

    /// Rows that are gone and no dead letters, and which of its claims that was.
    pub async fn acked(&self) -> Vec<(i64, i64)> {
        let sql = "SELECT id, claims FROM audit AS d WHERE op = 'delete' AND NOT EXISTS
            (SELECT FROM audit AS l WHERE l.op = 'letter' AND l.id = d.id AND l.xid = d.xid)";
        sqlx::query_as(sql).fetch_all(&self.direct).await.unwrap()
    }

    /// Rows to which the first statement of a kind wrote.
    pub async fn first_written(&self, kind: &str) -> i64 {
        let of_first = format!(
            "SELECT count(*) FROM audit WHERE op = '{kind}' AND xid =
             (SELECT xid FROM audit WHERE op = '{kind}' ORDER BY seq LIMIT 1)"
        );
        self.int(of_first).await
    }

    /// Takes everything away.
    pub async fn strike(self) {
        self.pool.close().await;
        self.exec(format!("DROP SCHEMA {} CASCADE", self.name)).await;
        self.direct.close().await;
    }
}
