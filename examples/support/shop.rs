//! The database of the quickstart: a table of orders beside the outbox, in a
//! SQLite file of its own or in a schema of its own on PostgreSQL.

mod scratch;

use std::time::Duration;

use anyhow::{Context as _, bail};
use outbox::{App, Publisher, TableNames};
use scratch::Scratch;
use serde::Serialize;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, PgPool, SqlitePool};

pub enum Shop {
    Sqlite(SqlitePool, Scratch),
    Postgres(PgPool, String),
}

impl Shop {
    /// On the server that `DATABASE_URL` names, or on a temporary file.
    pub async fn open() -> anyhow::Result<Self> {
        let url = std::env::var("DATABASE_URL").unwrap_or_default();
        let shop = match url.split(':').next().unwrap_or_default() {
            "" | "sqlite" => {
                let scratch = Scratch::new()?;
                Self::Sqlite(scratch.open().await?, scratch)
            }
            "postgres" | "postgresql" => Self::on_server(&url).await?,
            // The URL may hold a password, so it is not repeated.
            _ => bail!("`DATABASE_URL` starts with neither `postgres://` nor `sqlite:`"),
        };
        if let Err(error) = shop.create_tables().await {
            shop.close().await?;
            return Err(error);
        }
        println!("Database: {}", shop.describe());
        Ok(shop)
    }

    async fn on_server(url: &str) -> anyhow::Result<Self> {
        let options: PgConnectOptions =
            url.parse().context("`DATABASE_URL` is not a PostgreSQL URL")?;
        // One connection first: a pool would go on trying a server that is not there.
        let connecting = tokio::time::timeout(Duration::from_secs(5), options.connect());
        let mut setup = match connecting.await {
            Ok(connected) => connected.context("the server that `DATABASE_URL` names")?,
            Err(_) => bail!("the server that `DATABASE_URL` names does not answer within 5 s"),
        };
        let unique = "SELECT 'outbox_example_' || replace(gen_random_uuid()::text, '-', '')";
        let schema: String = sqlx::query_scalar(unique).fetch_one(&mut setup).await?;
        let create = AssertSqlSafe(format!("CREATE SCHEMA {schema}"));
        sqlx::query(create).execute(&mut setup).await?;
        let pool = PgPoolOptions::new()
            .connect_lazy_with(options.options([("search_path", schema.as_str())]));
        Ok(Self::Postgres(pool, schema))
    }

    async fn create_tables(&self) -> anyhow::Result<()> {
        let orders = "CREATE TABLE orders (id BIGINT PRIMARY KEY)";
        match self {
            Self::Sqlite(pool, _) => {
                sqlx::query(orders).execute(pool).await?;
                outbox::schema::migrate_tables(pool, &self.names()?).await?;
            }
            Self::Postgres(pool, _) => {
                sqlx::query(orders).execute(pool).await?;
                outbox::schema::migrate_tables(pool, &self.names()?).await?;
            }
        }
        Ok(())
    }

    fn describe(&self) -> String {
        match self {
            Self::Sqlite(..) => "SQLite, a temporary file".into(),
            Self::Postgres(_, schema) => format!("PostgreSQL, the temporary schema {schema}"),
        }
    }

    fn names(&self) -> anyhow::Result<TableNames> {
        let names = TableNames::default().with_dlq("outbox_dlq")?;
        Ok(match self {
            Self::Sqlite(..) => names,
            Self::Postgres(_, schema) => names.in_schema(schema)?,
        })
    }

    pub fn app(&self) -> anyhow::Result<App> {
        let app = match self {
            Self::Sqlite(pool, _) => App::sqlite(pool.clone()),
            Self::Postgres(pool, _) => App::postgres(pool.clone()),
        };
        Ok(app.names(self.names()?))
    }

    /// Writes an order and its message in one transaction, and says how many orders that were.
    pub async fn place(
        &self,
        id: i64,
        queue: &str,
        message: &impl Serialize,
        commit: bool,
    ) -> anyhow::Result<u64> {
        let publisher = Publisher::new(self.names()?);
        let insert = "INSERT INTO orders (id) VALUES ($1)";
        let placed = match self {
            Self::Sqlite(pool, _) => {
                let mut tx = outbox::sqlite::begin(pool).await?;
                let placed = sqlx::query(insert).bind(id).execute(&mut *tx).await?.rows_affected();
                publisher.publish(&mut tx, queue, message).await?;
                if commit {
                    tx.commit().await?
                } else {
                    tx.rollback().await?
                }
                placed
            }
            Self::Postgres(pool, _) => {
                let mut tx = pool.begin().await?;
                let placed = sqlx::query(insert).bind(id).execute(&mut *tx).await?.rows_affected();
                publisher.publish(&mut tx, queue, message).await?;
                if commit {
                    tx.commit().await?
                } else {
                    tx.rollback().await?
                }
                placed
            }
        };
        Ok(placed)
    }

    pub async fn count(&self, table: &str) -> anyhow::Result<i64> {
        let sql = AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
        Ok(match self {
            Self::Sqlite(pool, _) => sqlx::query_scalar(sql).fetch_one(pool).await?,
            Self::Postgres(pool, _) => sqlx::query_scalar(sql).fetch_one(pool).await?,
        })
    }

    /// Ready when no message is left.
    pub async fn empty(&self) -> anyhow::Result<()> {
        let empty = async {
            while self.count("outbox").await? > 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            anyhow::Ok(())
        };
        let waited = tokio::time::timeout(Duration::from_secs(7), empty).await;
        waited.context("messages are left after 7 s")?
    }

    /// Queue, reason and error of every dead letter.
    pub async fn dead_letters(&self) -> anyhow::Result<Vec<(String, String, Option<String>)>> {
        let sql = "SELECT queue, failure_reason, last_exception FROM outbox_dlq ORDER BY id";
        Ok(match self {
            Self::Sqlite(pool, _) => sqlx::query_as(sql).fetch_all(pool).await?,
            Self::Postgres(pool, _) => sqlx::query_as(sql).fetch_all(pool).await?,
        })
    }

    /// Removes the file or the schema.
    pub async fn close(self) -> anyhow::Result<()> {
        match self {
            Self::Sqlite(pool, _scratch) => pool.close().await,
            Self::Postgres(pool, schema) => {
                let drop = AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"));
                sqlx::query(drop).execute(&pool).await?;
                pool.close().await;
            }
        }
        Ok(())
    }
}
