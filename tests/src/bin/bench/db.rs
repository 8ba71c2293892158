//! A database for every scenario, and rows to begin with.

use anyhow::Result;
use outbox::{App, TableNames};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor};

/// The queue that is measured.
pub const QUEUE: &str = "bench";

/// A fresh database on the server.
pub struct Pg {
    pub pool: PgPool,
    pub options: PgConnectOptions,
}

impl Pg {
    pub async fn fresh(url: &str) -> Result<Self> {
        let server: PgConnectOptions = url.parse()?;
        let name = outbox_tests::backend::unique("bench");
        let admin = PgPoolOptions::new().max_connections(1).connect_with(server.clone()).await?;
        admin.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await?;
        admin.close().await;
        let options = server.database(&name).application_name("bench");
        let pool = PgPoolOptions::new().max_connections(2).connect_with(options.clone()).await?;
        outbox::schema::migrate_tables(&pool, &names()).await?;
        Ok(Self { pool, options })
    }

    /// Its connections have the application name that is counted.
    pub fn app(&self) -> App {
        let engine = self.options.clone().application_name(crate::sessions::ENGINE);
        App::postgres(PgPoolOptions::new().connect_lazy_with(engine)).names(names())
    }

    /// Rows as `publish` writes them, due now, and nothing else.
    pub async fn fill(&self, rows: u64) -> Result<()> {
        self.empty().await?;
        self.insert(QUEUE, rows, "clock_timestamp()").await?;
        self.settle_down().await
    }

    pub async fn empty(&self) -> Result<()> {
        self.pool.execute("TRUNCATE outbox, outbox_dlq").await?;
        Ok(())
    }

    /// In one transaction, each due at what the expression `due` gives.
    pub async fn insert(&self, queue: &str, rows: u64, due: &str) -> Result<()> {
        self.insert_of(queue, rows, due, 60).await
    }

    /// With a note of so many characters.
    pub async fn insert_of(&self, queue: &str, rows: u64, due: &str, note: usize) -> Result<()> {
        let sql = format!(
            "INSERT INTO outbox (queue, payload, headers, created_at, next_attempt_at)
             SELECT '{queue}', convert_to(format(
                 '{{\"id\":%s,\"customer\":\"c-%s\",\"note\":\"%s\"}}', n, n % 1000, repeat('x', {note})), 'UTF8'),
                 jsonb_build_object('content-type', 'application/json',
                     'correlation_id', gen_random_uuid(), 'outbox-tracking-ids', gen_random_uuid()),
                 clock_timestamp(), {due}
             FROM generate_series(1, {rows}) AS n"
        );
        self.pool.execute(AssertSqlSafe(sql)).await?;
        Ok(())
    }

    /// Does now what the server would do in the middle of a measurement.
    pub async fn settle_down(&self) -> Result<()> {
        self.pool.execute("VACUUM ANALYZE outbox").await?;
        self.pool.execute("CHECKPOINT").await?;
        Ok(())
    }

    pub async fn left(&self) -> Result<i64> {
        Ok(sqlx::query_scalar("SELECT count(*) FROM outbox").fetch_one(&self.pool).await?)
    }
}

pub fn names() -> TableNames {
    TableNames::default().with_dlq("outbox_dlq").expect("a valid name")
}

/// A `timestamptz` as the server sends it, to be handed back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(i64);

impl Default for Stamp {
    fn default() -> Self {
        Self(i64::MIN)
    }
}

impl sqlx::Type<sqlx::Postgres> for Stamp {
    fn type_info() -> sqlx::postgres::PgTypeInfo {
        sqlx::postgres::PgTypeInfo::with_name("timestamptz")
    }
}

impl sqlx::Encode<'_, sqlx::Postgres> for Stamp {
    fn encode_by_ref(
        &self,
        buf: &mut sqlx::postgres::PgArgumentBuffer,
    ) -> Result<sqlx::encode::IsNull, sqlx::error::BoxDynError> {
        <i64 as sqlx::Encode<sqlx::Postgres>>::encode_by_ref(&self.0, buf)
    }
}

impl sqlx::Decode<'_, sqlx::Postgres> for Stamp {
    fn decode(value: sqlx::postgres::PgValueRef<'_>) -> Result<Self, sqlx::error::BoxDynError> {
        <i64 as sqlx::Decode<sqlx::Postgres>>::decode(value).map(Self)
    }
}
