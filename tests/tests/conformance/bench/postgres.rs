//! The bench of PostgreSQL: a schema of its own on the server of the tests.

use std::time::Duration;

use outbox::schema::{Database, migrate_tables};
use outbox::testing::store::PgStore;
use outbox::{Publisher, Row, TableNames};
use outbox_tests::postgres::PgSchema;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Row as _, Transaction};

use super::raw::{json, quoted, read_letter, read_row};
use super::sql::in_sql;
use super::{Bench, RawLetter, RawRow, SqlBench, execute};

#[derive(Clone)]
pub struct Postgres {
    schema: PgSchema,
    pool: PgPool,
    names: TableNames,
    publisher: Publisher,
    store: PgStore,
}

impl Postgres {
    fn on(schema: PgSchema, pool: PgPool, names: TableNames) -> Self {
        let publisher = Publisher::new(names.clone());
        let engine = outbox_tests::roles::of_engine((*pool.connect_options()).clone());
        let store = PgStore::new(&PgPoolOptions::new().connect_lazy_with(engine), names.clone());
        Self { schema, pool, names, publisher, store }
    }

    /// The schema of this case.
    pub fn schema(&self) -> &str {
        &self.schema.name
    }

    /// The same schema for connections that have another `search_path`.
    pub fn on_search_path(&self, search_path: &str, names: TableNames) -> Self {
        Self::on(self.schema.clone(), PgSchema::pool(search_path), names)
    }

    /// The same tables for connections with other settings.
    pub fn with_settings<const N: usize>(&self, settings: [(&str, &str); N]) -> Self {
        let options = (*self.pool.connect_options()).clone().options(settings);
        let pool = PgPoolOptions::new().max_connections(4).connect_lazy_with(options);
        Self::on(self.schema.clone(), pool, self.names.clone())
    }

    fn qualified(&self, name: &str) -> String {
        match self.names.schema() {
            Some(schema) => format!("{}.{}", quoted(schema), quoted(name)),
            None => quoted(name),
        }
    }

    fn table(&self) -> String {
        self.qualified(self.names.table())
    }

    fn dlq(&self) -> String {
        self.qualified(self.names.dlq().unwrap_or("outbox_dlq"))
    }
}

fn time(column: &str) -> String {
    format!("(extract(epoch FROM {column}) * 1000000)::bigint")
}

impl Bench for Postgres {
    type Store = PgStore;
    type Tx = Transaction<'static, sqlx::Postgres>;
    type Mark = ();

    const WRITERS_OVERLAP: bool = true;

    in_sql!(Bench);

    async fn open() -> Option<Self> {
        let schema = PgSchema::fresh().await?;
        let names = TableNames::default().with_dlq("outbox_dlq").unwrap();
        let bench = Self::on(schema.clone(), schema.pool, names);
        migrate_tables(&bench.pool, &bench.names).await.unwrap();
        outbox_tests::roles::grant_if_used(&bench.pool, &bench.names).await;
        Some(bench)
    }

    async fn close(&self) {
        outbox::testing::store::Store::close(&self.store).await;
        self.schema.drop().await;
    }

    fn without_dlq(&self) -> Self {
        Self::on(self.schema.clone(), self.pool.clone(), TableNames::default())
    }

    async fn begin(&self) -> Self::Tx {
        self.pool.begin().await.unwrap()
    }

    async fn rows(&self) -> Vec<RawRow> {
        let sql = format!(
            "SELECT id, queue, payload, headers::text, attempts_count, deliveries_count, {}, {}, \
                {}, {}, {}, acquired_token, timer_id \
             FROM {} ORDER BY id",
            time("created_at"),
            time("next_attempt_at"),
            time("first_attempt_at"),
            time("last_attempt_at"),
            time("acquired_at"),
            self.table()
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&self.pool).await.unwrap();
        rows.iter().map(|row| read_row!(row)).collect()
    }

    async fn letters(&self) -> Vec<RawLetter> {
        let sql = format!(
            "SELECT id, original_id, queue, payload, headers::text, deliveries_count, {}, {}, \
                failure_reason, last_exception, timer_id, error_kind, note, \
                fingerprint \
             FROM {} ORDER BY id",
            time("created_at"),
            time("failed_at"),
            self.dlq()
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&self.pool).await.unwrap();
        rows.iter().map(|row| read_letter!(row)).collect()
    }

    async fn now(&self) -> i64 {
        self.number(&format!("SELECT {}", time("clock_timestamp()"))).await
    }

    async fn age(&self, by: Duration) {
        let (table, dlq) = (self.table(), self.dlq());
        let by = format!("interval '{} microseconds'", by.as_micros());
        self.execute(&format!(
            "UPDATE {table} SET created_at = created_at - {by}, \
                next_attempt_at = next_attempt_at - {by}, \
                first_attempt_at = first_attempt_at - {by}, \
                last_attempt_at = last_attempt_at - {by}, acquired_at = acquired_at - {by}; \
             UPDATE {dlq} SET created_at = created_at - {by}, failed_at = failed_at - {by}"
        ))
        .await;
    }

    async fn set_headers(&self, id: i64, headers: Option<&str>) {
        let sql = format!("UPDATE {} SET headers = $1::jsonb WHERE id = $2", self.table());
        let set = sqlx::query(AssertSqlSafe(sql)).bind(headers).bind(id);
        set.execute(&self.pool).await.unwrap();
    }

    async fn refuse_letters_of(&self, queue: &str) {
        let sql =
            format!("ALTER TABLE outbox_dlq ADD CONSTRAINT refuse CHECK (queue <> '{queue}')");
        self.execute(&sql).await;
    }
}

impl SqlBench for Postgres {
    type Database = sqlx::Postgres;
    type Pool = PgPool;

    const DATABASE: Database = Database::Postgres;

    in_sql!(SqlBench);

    fn pool(&self) -> &PgPool {
        &self.pool
    }

    fn with_names(&self, names: TableNames) -> Self {
        Self::on(self.schema.clone(), self.pool.clone(), names)
    }

    async fn execute(&self, sql: &str) {
        execute(&self.pool, sql).await;
    }
}
