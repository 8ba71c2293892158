//! The server that `DATABASE_URL` names, or one of our own with stock settings.

use anyhow::{Context as _, Result};
use outbox_tests::server::Server as Own;
pub use outbox_tests::server::scratch;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

pub struct Server {
    pub url: String,
    own: Option<Own>,
}

impl Server {
    /// For the head of the table.
    pub fn whose(&self) -> String {
        match &self.own {
            Some(own) => format!("its own with stock settings, data in {}", own.folder.display()),
            None => "that of DATABASE_URL".to_owned(),
        }
    }

    pub async fn version(&self) -> Result<String> {
        let options: PgConnectOptions = self.url.parse()?;
        let mut connection = options.connect().await?;
        let version = sqlx::query_scalar("SHOW server_version").fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok(version)
    }

    pub async fn of_environment_or_own() -> Result<Self> {
        match std::env::var("DATABASE_URL") {
            Ok(url) => {
                let server = Self { url, own: None };
                // At once, where a pool would try for half a minute.
                server.version().await.context("the server of DATABASE_URL")?;
                Ok(server)
            }
            Err(_) => {
                let own = Own::start(&[]).context("install PostgreSQL or set DATABASE_URL")?;
                Ok(Self { url: own.url.clone(), own: Some(own) })
            }
        }
    }
}
