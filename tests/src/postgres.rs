//! A schema of its own for every test, on the one server.

use std::str::FromStr;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor};

use crate::backend;

/// A fresh schema. Connections find it by their `search_path`.
#[derive(Debug, Clone)]
pub struct PgSchema {
    pub name: String,
    pub pool: PgPool,
}

impl PgSchema {
    /// Makes a schema; `None`, after a line that says so, without a server.
    ///
    /// # Panics
    /// When the server is required or cannot be used.
    pub async fn fresh() -> Option<Self> {
        if !backend::require("postgres") {
            return None;
        }
        let name = backend::unique("t");
        let pool = Self::pool(&name);
        pool.execute(AssertSqlSafe(format!("CREATE SCHEMA {name}"))).await.unwrap();
        Some(Self { name, pool })
    }

    /// Another pool on the server, with another `search_path`.
    ///
    /// # Panics
    /// Without a server.
    #[must_use]
    pub fn pool(search_path: &str) -> PgPool {
        let url = backend::pg_url().expect("a server was found before");
        let options = PgConnectOptions::from_str(&url).unwrap();
        let options = options.options([("search_path", search_path)]);
        PgPoolOptions::new().max_connections(4).connect_lazy_with(options)
    }

    /// Drops the schema with all that is in it.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn drop(&self) {
        let sql = format!("DROP SCHEMA IF EXISTS {} CASCADE", self.name);
        self.pool.execute(AssertSqlSafe(sql)).await.unwrap();
        self.pool.close().await;
    }
}
