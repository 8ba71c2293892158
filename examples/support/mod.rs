//! The database of an example: a table of orders beside the outbox, on SQLite in
//! a temporary folder, or on PostgreSQL in a schema of its own.

use std::path::PathBuf;

use outbox::{App, Publisher, TableNames};
use sqlx::{AssertSqlSafe, PgPool, SqlitePool};

pub enum Shop {
    Sqlite(SqlitePool, PathBuf),
    Postgres(PgPool, String),
}

impl Shop {
    pub async fn open() -> anyhow::Result<Self> {
        let name = format!("outbox_example_{}", std::process::id());
        let orders = "CREATE TABLE orders (id BIGINT PRIMARY KEY)";
        let shop = match std::env::var("DATABASE_URL") {
            Ok(url) if url.starts_with("postgres") => {
                let setup = PgPool::connect(&url).await?;
                sqlx::query(AssertSqlSafe(format!("CREATE SCHEMA {name}"))).execute(&setup).await?;
                let options = url.parse::<sqlx::postgres::PgConnectOptions>()?;
                let options = options.options([("search_path", &name)]);
                let pool = PgPool::connect_with(options).await?;
                sqlx::query(orders).execute(&pool).await?;
                let shop = Self::Postgres(pool.clone(), name);
                outbox::schema::migrate_tables(&pool, &shop.names()?).await?;
                shop
            }
            _ => {
                let folder = std::env::temp_dir().join(name);
                std::fs::create_dir_all(&folder)?;
                let url = format!("sqlite:{}", folder.join("shop.db").display());
                let pool = outbox::sqlite::connect(&url).await?;
                sqlx::query(orders).execute(&pool).await?;
                let shop = Self::Sqlite(pool.clone(), folder);
                outbox::schema::migrate_tables(&pool, &shop.names()?).await?;
                shop
            }
        };
        Ok(shop)
    }

    pub fn names(&self) -> anyhow::Result<TableNames> {
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

    /// Writes an order and its message in one transaction.
    pub async fn order(&self, id: i64, queue: &str, commit: bool) -> anyhow::Result<()> {
        let publisher = Publisher::new(self.names()?);
        let (insert, body) =
            ("INSERT INTO orders (id) VALUES ($1)", serde_json::json!({ "id": id }));
        match self {
            Self::Sqlite(pool, _) => {
                let mut tx = outbox::sqlite::begin(pool).await?;
                sqlx::query(insert).bind(id).execute(&mut *tx).await?;
                publisher.publish(&mut tx, queue, &body).await?;
                if commit { tx.commit().await? } else { tx.rollback().await? }
            }
            Self::Postgres(pool, _) => {
                let mut tx = pool.begin().await?;
                sqlx::query(insert).bind(id).execute(&mut *tx).await?;
                publisher.publish(&mut tx, queue, &body).await?;
                if commit { tx.commit().await? } else { tx.rollback().await? }
            }
        }
        Ok(())
    }

    pub async fn count(&self, table: &str) -> anyhow::Result<i64> {
        let sql = AssertSqlSafe(format!("SELECT count(*) FROM {table}"));
        Ok(match self {
            Self::Sqlite(pool, _) => sqlx::query_scalar(sql).fetch_one(pool).await?,
            Self::Postgres(pool, _) => sqlx::query_scalar(sql).fetch_one(pool).await?,
        })
    }

    /// Queue, reason and error of every dead letter.
    pub async fn dead_letters(&self) -> anyhow::Result<Vec<(String, String, Option<String>)>> {
        let sql = "SELECT queue, failure_reason, last_exception FROM outbox_dlq ORDER BY id";
        Ok(match self {
            Self::Sqlite(pool, _) => sqlx::query_as(sql).fetch_all(pool).await?,
            Self::Postgres(pool, _) => sqlx::query_as(sql).fetch_all(pool).await?,
        })
    }

    pub async fn close(self) -> anyhow::Result<()> {
        match self {
            Self::Sqlite(pool, folder) => {
                pool.close().await;
                std::fs::remove_dir_all(folder)?;
            }
            Self::Postgres(pool, schema) => {
                let drop = AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"));
                sqlx::query(drop).execute(&pool).await?;
                pool.close().await;
            }
        }
        Ok(())
    }
}
