//! What faults are done to.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use fastrand::Rng;
use outbox::TableNames;
use outbox_tests::server::Server;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use tokio::time::{sleep, timeout};

use crate::args::Store;
use crate::fleet::{Fleet, Seat};
use crate::journal::now;
use crate::net::Net;

const WORKERS: usize = 3;
const PRODUCERS: usize = 3;
/// Whose connections are broken. It owns the tables, and is no superuser.
pub const ROLE: &str = "campaign";

/// A fault that was done.
#[derive(Clone, Debug)]
pub struct Done {
    pub kind: &'static str,
    pub from: i64,
    pub to: i64,
}

pub struct World {
    pub store: Store,
    pub folder: PathBuf,
    /// The server's, or the file's.
    pub url: String,
    pub server: Option<Arc<Server>>,
    pub fleet: Arc<Fleet>,
    /// One at a time stops the server.
    pub turn: tokio::sync::Mutex<()>,
    /// One at a time changes what applies to everybody.
    pub settings: tokio::sync::Mutex<()>,
    done: Mutex<Vec<Done>>,
    /// What was found broken on the way.
    broken: Mutex<Vec<String>>,
}

/// What the server does beside its defaults. There are few connections, so that they can be
/// used up.
const SETTINGS: [(&str, &str); 3] =
    [("fsync", "off"), ("max_connections", "70"), ("log_min_messages", "fatal")];

impl World {
    pub async fn make(store: Store, folder: PathBuf, seed: u64) -> Result<Arc<Self>> {
        match store {
            Store::Postgres => Self::postgres(folder, seed).await,
            Store::Sqlite => Self::sqlite(folder, seed).await,
        }
    }

    async fn postgres(folder: PathBuf, seed: u64) -> Result<Arc<Self>> {
        let server = tokio::task::spawn_blocking(|| Server::start(&SETTINGS)).await??;
        let options: PgConnectOptions = server.url.parse()?;
        let mut admin = PgConnection::connect_with(&options).await?;
        let role = format!("CREATE ROLE {ROLE} LOGIN; GRANT ALL ON SCHEMA public TO {ROLE}");
        admin.execute(AssertSqlSafe(role)).await?;
        let own = options.clone().username(ROLE);
        let pool = PgPoolOptions::new().max_connections(1).connect_with(own).await?;
        outbox::schema::migrate_tables(&pool, &TableNames::default()).await?;
        pool.close().await;
        admin.execute(include_str!("audit/postgres.sql")).await?;
        admin.close().await?;
        let address = SocketAddr::from(([127, 0, 0, 1], options.get_port()));
        let (mut workers, mut producers) = (Vec::new(), Vec::new());
        for number in 0..WORKERS {
            workers.push(Seat::new("worker", number, Some(Net::before(address).await?)));
        }
        for number in 0..PRODUCERS {
            producers.push(Seat::new("producer", number, Some(Net::before(address).await?)));
        }
        // The port is that of the seat's own proxy.
        let url = format!("postgres://{ROLE}@127.0.0.1:0/postgres");
        let fleet = Fleet::new(folder.clone(), url, seed, workers, producers);
        let (url, server) = (server.url.clone(), Some(Arc::new(server)));
        Ok(Self::of(Store::Postgres, folder, url, server, fleet))
    }

    async fn sqlite(folder: PathBuf, seed: u64) -> Result<Arc<Self>> {
        let url = format!("sqlite:{}", folder.join("campaign.db").display());
        let pool = outbox::sqlite::connect(&url).await?;
        outbox::schema::migrate_tables(&pool, &TableNames::default()).await?;
        pool.execute(include_str!("audit/sqlite.sql")).await?;
        pool.close().await;
        let seats = |part, count| (0..count).map(|number| Seat::new(part, number, None)).collect();
        let (workers, producers) = (seats("worker", WORKERS), seats("producer", PRODUCERS));
        let fleet = Fleet::new(folder.clone(), url.clone(), seed, workers, producers);
        Ok(Self::of(Store::Sqlite, folder, url, None, fleet))
    }

    fn of(
        store: Store,
        folder: PathBuf,
        url: String,
        server: Option<Arc<Server>>,
        fleet: Arc<Fleet>,
    ) -> Arc<Self> {
        let (turn, settings, done, broken) = Default::default();
        Arc::new(Self { store, folder, url, server, fleet, turn, settings, done, broken })
    }

    /// A superuser's connection, past the proxies.
    pub async fn admin(&self) -> Result<PgConnection> {
        let options = self.url.parse::<PgConnectOptions>()?.application_name("chaos");
        let connect = PgConnection::connect_with(&options);
        Ok(timeout(Duration::from_secs(3), connect).await.context("no answer")??)
    }

    /// Runs statements as a superuser.
    pub async fn admin_does(&self, sql: impl Into<String>) -> Result<u64> {
        let mut admin = self.admin().await?;
        let done = admin.execute(AssertSqlSafe(sql.into())).await?.rows_affected();
        admin.close().await?;
        Ok(done)
    }

    /// Waits until the server takes connections.
    pub async fn answers(&self) -> Result<()> {
        let mut tries = 0;
        while let Err(error) = self.admin_does("SELECT 1").await {
            tries += 1;
            if tries > 300 {
                return Err(error.context("the server does not come back"));
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    pub fn note(&self, kind: &'static str, from: i64) {
        self.done.lock().unwrap().push(Done { kind, from, to: now() });
    }

    pub fn broken(&self, what: String) {
        self.broken.lock().unwrap().push(what);
    }

    pub fn breaks(&self) -> Vec<String> {
        self.broken.lock().unwrap().clone()
    }

    pub fn done(&self) -> Vec<Done> {
        self.done.lock().unwrap().clone()
    }

    pub fn worker(&self, rng: &mut Rng) -> &Arc<Seat> {
        &self.fleet.workers[rng.usize(0..self.fleet.workers.len())]
    }

    pub fn producer(&self, rng: &mut Rng) -> &Arc<Seat> {
        &self.fleet.producers[rng.usize(0..self.fleet.producers.len())]
    }
}
