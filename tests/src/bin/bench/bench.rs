//! What a scenario is given: the arguments, and databases that are dropped after it.

use std::sync::Mutex;

use anyhow::Result;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _};
use tokio::sync::OnceCell;

use crate::Args;
use crate::db::Pg;
use crate::server::Server;

pub struct Bench {
    pub args: Args,
    server: OnceCell<Server>,
    databases: Mutex<Vec<String>>,
}

impl Bench {
    pub fn new(args: Args) -> Self {
        Self { args, server: OnceCell::new(), databases: Mutex::default() }
    }

    /// Number of messages: what was asked for, or the scenario's own.
    pub fn messages(&self, own: u64) -> u64 {
        self.args.messages.unwrap_or(own)
    }

    /// Started when the first scenario needs it.
    pub async fn server(&self) -> Result<&Server> {
        self.server.get_or_try_init(Server::of_environment_or_own).await
    }

    /// A fresh database with the tables in it.
    pub async fn postgres(&self) -> Result<Pg> {
        let pg = Pg::fresh(&self.server().await?.url).await?;
        let name = pg.options.get_database().unwrap_or_default().to_owned();
        self.databases.lock().expect("nobody panics with it").push(name);
        Ok(pg)
    }

    /// Drops what the last scenario has used, with its connections.
    pub async fn clean(&self) -> Result<()> {
        let names = std::mem::take(&mut *self.databases.lock().expect("nobody panics with it"));
        if names.is_empty() {
            return Ok(());
        }
        let options: PgConnectOptions = self.server().await?.url.parse()?;
        let mut admin: PgConnection = options.connect().await?;
        for name in names {
            admin.execute(AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"))).await?;
        }
        Ok(admin.close().await?)
    }

    /// What the figures were taken on.
    pub async fn machine(&self) -> String {
        let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let Some(server) = self.server.get() else { return format!("{cores} cores") };
        let version = server.version().await.unwrap_or_else(|error| format!("({error:#})"));
        format!("{cores} cores; PostgreSQL {version}, {}", server.whose())
    }
}
