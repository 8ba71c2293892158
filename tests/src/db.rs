//! A database of its own for every test: PostgreSQL on the server that
//! `scripts/test` starts, SQLite in a temporary folder.

use std::path::PathBuf;

use outbox::{App, Outgoing, Published, Publisher, TableNames};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::sqlite::SqlitePool;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor};

use crate::backend::{pg_url, require, unique};
use crate::server::{Server, scratch};

#[derive(Clone)]
pub enum Pool {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

/// Keeps everybody else from writing, until released.
#[must_use]
pub enum Lock {
    Postgres(sqlx::Transaction<'static, sqlx::Postgres>),
    Sqlite(sqlx::Transaction<'static, sqlx::Sqlite>),
}

impl Lock {
    pub async fn release(self) {
        match self {
            Self::Postgres(tx) => tx.rollback().await.unwrap(),
            Self::Sqlite(tx) => tx.rollback().await.unwrap(),
        }
    }
}

pub struct Db {
    pub pool: Pool,
    pub names: TableNames,
    pub url: String,
    folder: Option<PathBuf>,
    pub(crate) own_server: bool,
}

/// Runs every case on both databases. With `one thread:` no other task runs while
/// one is polled.
#[macro_export]
macro_rules! on_both {
    (one thread: $($case:ident),* $(,)?) => {
        $crate::cases!(postgres in postgres on (flavor = "current_thread"): $($case),*);
        $crate::cases!(sqlite in sqlite on (flavor = "current_thread"): $($case),*);
    };
    ($($case:ident),* $(,)?) => {
        $crate::cases!(postgres in postgres: $($case),*);
        $crate::cases!(sqlite in sqlite: $($case),*);
    };
}

/// Runs every case on PostgreSQL; goes beside [`on_both`](crate::on_both).
#[macro_export]
macro_rules! on_postgres {
    (one thread: $($case:ident),* $(,)?) => {
        $crate::cases!(postgres in postgres_only on (flavor = "current_thread"): $($case),*);
    };
    ($($case:ident),* $(,)?) => {
        $crate::cases!(postgres in postgres_only: $($case),*);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! cases {
    ($database:ident in $module:ident: $($case:ident),*) => {
        $crate::cases!(
            $database in $module on (flavor = "multi_thread", worker_threads = 2): $($case),*
        );
    };
    ($database:ident in $module:ident on $runtime:tt: $($case:ident),*) => {
        mod $module {
            $(#[tokio::test $runtime]
            async fn $case() {
                let Some(db) = $crate::db::Db::$database().await else { return };
                super::$case(&db).await;
                db.close().await;
            })*
        }
    };
}

impl Db {
    /// `None`, with a printed line, when there is no server.
    pub async fn postgres() -> Option<Self> {
        let db = Self::bare_postgres().await?;
        db.migrate().await;
        Some(db)
    }

    /// An empty database.
    pub async fn bare_postgres() -> Option<Self> {
        if !require("postgres") {
            return None;
        }
        let server = pg_url()?;
        let name = unique("outbox_app");
        let options: PgConnectOptions = server.parse().unwrap();
        let admin = PgPoolOptions::new().max_connections(1).connect_with(options.clone()).await;
        let admin = admin.unwrap();
        admin.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
        admin.close().await;
        let url = format!("{}/{name}", server.rsplit_once('/').unwrap().0);
        let options = options.database(&name).application_name("test");
        let pool = PgPoolOptions::new().max_connections(4).connect_with(options).await.unwrap();
        Some(Self {
            pool: Pool::Postgres(pool),
            names: names(),
            url,
            folder: None,
            own_server: false,
        })
    }

    /// On a server of the test's own, with tables.
    pub async fn of(server: &Server) -> Self {
        Self::at(&server.url).await
    }

    /// As [`of`](Self::of), by the server's address.
    pub async fn at(url: &str) -> Self {
        let options: PgConnectOptions = url.parse().unwrap();
        let options = options.application_name("test");
        let pool = PgPoolOptions::new().max_connections(4).connect_with(options).await.unwrap();
        let url = url.to_owned();
        let pool = Pool::Postgres(pool);
        let db = Self { pool, names: names(), url, folder: None, own_server: true };
        db.migrate().await;
        db
    }

    pub async fn sqlite() -> Option<Self> {
        let db = Self::bare_sqlite().await?;
        db.migrate().await;
        Some(db)
    }

    /// An empty file.
    pub async fn bare_sqlite() -> Option<Self> {
        let folder = scratch().join(unique("outbox_app"));
        std::fs::create_dir_all(&folder).unwrap();
        let url = format!("sqlite:{}", folder.join("test.db").display());
        let pool = outbox::sqlite::connect(&url).await.unwrap();
        let pool = Pool::Sqlite(pool);
        Some(Self { pool, names: names(), url, folder: Some(folder), own_server: false })
    }

    /// The same database with other tables.
    #[must_use]
    pub fn named(&self, names: TableNames) -> Self {
        let (pool, url, own_server) = (self.pool.clone(), self.url.clone(), self.own_server);
        Self { pool, names, url, folder: None, own_server }
    }

    pub async fn migrate(&self) {
        match &self.pool {
            Pool::Postgres(pool) => {
                outbox::schema::migrate_tables(pool, &self.names).await.unwrap();
                if !self.own_server {
                    crate::roles::grant_if_used(pool, &self.names).await;
                    crate::roles::grant_own_tables_if_used(pool).await;
                }
            }
            Pool::Sqlite(pool) => {
                outbox::schema::migrate_tables(pool, &self.names).await.unwrap();
            }
        }
    }

    pub fn is_postgres(&self) -> bool {
        matches!(self.pool, Pool::Postgres(_))
    }

    /// The pool, on PostgreSQL.
    pub fn pg(&self) -> &PgPool {
        match &self.pool {
            Pool::Postgres(pool) => pool,
            Pool::Sqlite(_) => panic!("this is SQLite"),
        }
    }

    /// An app with a dead-letter table and, so far, no subscriber. Its
    /// connections have the application name `engine`.
    pub fn app(&self) -> App {
        let app = match &self.pool {
            Pool::Postgres(pool) => {
                let mut options = (*pool.connect_options()).clone().application_name("engine");
                if !self.own_server {
                    options = crate::roles::of_engine(options);
                }
                App::postgres(PgPoolOptions::new().connect_lazy_with(options))
            }
            Pool::Sqlite(pool) => App::sqlite(pool.clone()),
        };
        app.names(self.names.clone()).only([])
    }

    pub async fn publish(&self, queue: &str, n: i64) -> i64 {
        self.send(Outgoing::new(queue, &n)).await.id().unwrap()
    }

    pub async fn send(&self, message: Outgoing) -> Published {
        self.send_all([message]).await[0]
    }

    /// In one transaction.
    pub async fn send_all(&self, messages: impl IntoIterator<Item = Outgoing>) -> Vec<Published> {
        let publisher = Publisher::new(self.names.clone());
        match &self.pool {
            Pool::Postgres(pool) => {
                let mut tx = pool.begin().await.unwrap();
                let published = publisher.publish_batch(&mut tx, messages).await.unwrap();
                tx.commit().await.unwrap();
                published
            }
            Pool::Sqlite(pool) => {
                let mut tx = outbox::sqlite::begin(pool).await.unwrap();
                let published = publisher.publish_batch(&mut tx, messages).await.unwrap();
                tx.commit().await.unwrap();
                published
            }
        }
    }

    pub async fn exec(&self, sql: impl Into<String>) {
        let sql = AssertSqlSafe(sql.into());
        match &self.pool {
            Pool::Postgres(pool) => pool.execute(sql).await.map(drop).unwrap(),
            Pool::Sqlite(pool) => {
                let mut connection = pool.acquire().await.unwrap();
                if ["ALTER TABLE", "CREATE UNIQUE INDEX"].iter().any(|it| sql.0.contains(it)) {
                    // It may not have looked since another one altered a table or dropped an
                    // index, which such a statement itself does not find out.
                    connection.execute("SELECT 0 FROM sqlite_schema WHERE 0").await.unwrap();
                }
                connection.execute(sql).await.unwrap();
            }
        }
    }

    /// One number.
    pub async fn int(&self, sql: impl Into<String>) -> i64 {
        let sql = AssertSqlSafe(sql.into());
        match &self.pool {
            Pool::Postgres(pool) => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
            Pool::Sqlite(pool) => sqlx::query_scalar(sql).fetch_one(pool).await.unwrap(),
        }
    }

    /// One column of texts.
    pub async fn texts(&self, sql: impl Into<String>) -> Vec<String> {
        let sql = AssertSqlSafe(sql.into());
        match &self.pool {
            Pool::Postgres(pool) => sqlx::query_scalar(sql).fetch_all(pool).await.unwrap(),
            Pool::Sqlite(pool) => sqlx::query_scalar(sql).fetch_all(pool).await.unwrap(),
        }
    }

    pub async fn lock(&self) -> Lock {
        match &self.pool {
            Pool::Postgres(pool) => {
                let mut tx = pool.begin().await.unwrap();
                tx.execute("LOCK TABLE outbox IN EXCLUSIVE MODE").await.unwrap();
                Lock::Postgres(tx)
            }
            Pool::Sqlite(pool) => Lock::Sqlite(outbox::sqlite::begin(pool).await.unwrap()),
        }
    }

    /// Waits until a statement of the engine waits for a lock (PostgreSQL).
    pub async fn engine_waits(&self) {
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
            AND application_name = 'engine' AND wait_event_type = 'Lock'";
        crate::wait::eventually("the engine waits for a lock", async || self.int(waits).await > 0)
            .await;
    }

    /// The engine's connections (PostgreSQL).
    pub async fn connections(&self) -> i64 {
        let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
            AND application_name = 'engine'";
        self.int(open).await
    }

    /// Opens every connection that the test's pool may have (PostgreSQL).
    pub async fn open_all(&self) {
        let pool = self.pg();
        let mut open = Vec::new();
        for _ in 0..pool.options().get_max_connections() {
            open.push(pool.acquire().await.unwrap());
        }
    }

    /// Apps that start later wait for a lock for as long as they ever do: five seconds
    /// (PostgreSQL).
    pub async fn waits_for_locks(&self) {
        let name = self.pg().connect_options().get_database().unwrap().to_owned();
        self.exec(format!("ALTER DATABASE {name} SET deadlock_timeout = '10s'")).await;
    }

    /// Requires of a case what holds where the machine does not stand still for so long: a lease
    /// is lost by a half of it in which nothing runs. What failed beside such a stall is run again,
    /// on empty tables.
    ///
    /// # Panics
    /// When it comes to anything else.
    pub async fn unless_stalled<T: std::fmt::Debug + PartialEq>(
        &self,
        stall: std::time::Duration,
        expected: T,
        case: impl AsyncFn() -> T,
    ) {
        let clear = async || {
            self.exec("DELETE FROM outbox").await;
            self.exec("DELETE FROM outbox_dlq").await;
        };
        let ping = async || self.exec("SELECT 1").await;
        crate::wait::unless_stalled(stall, expected, ping, clear, case).await;
    }

    /// New ones: those that are there stay (PostgreSQL).
    pub async fn allow_connections(&self, allow: bool) {
        let options = (*self.pg().connect_options()).clone();
        let name = options.get_database().unwrap().to_owned();
        // A database cannot be told so from within.
        let mut elsewhere = options.database("postgres").connect().await.unwrap();
        let sql = format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {allow}");
        elsewhere.execute(AssertSqlSafe(sql)).await.unwrap();
        elsewhere.close().await.unwrap();
    }

    /// Deliveries counted on all rows.
    pub async fn deliveries(&self) -> i64 {
        self.int("SELECT CAST(coalesce(sum(deliveries_count), 0) AS bigint) FROM outbox").await
    }

    pub async fn rows(&self) -> i64 {
        self.int("SELECT count(*) FROM outbox").await
    }

    pub async fn letters(&self) -> i64 {
        self.int("SELECT count(*) FROM outbox_dlq").await
    }

    /// Rows that somebody holds.
    pub async fn leased(&self) -> i64 {
        self.int("SELECT count(*) FROM outbox WHERE acquired_token IS NOT NULL").await
    }

    /// Waits until every row is gone.
    pub async fn drained(&self) {
        crate::wait::eventually("no row is left", async || self.rows().await == 0).await;
    }

    /// Closes its connections; a file stays until [`close`](Self::close).
    pub async fn shut(&self) {
        match &self.pool {
            Pool::Postgres(pool) => pool.close().await,
            Pool::Sqlite(pool) => pool.close().await,
        }
    }

    pub async fn close(self) {
        self.shut().await;
        if let Some(folder) = self.folder {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

fn names() -> TableNames {
    TableNames::default().with_dlq("outbox_dlq").unwrap()
}
