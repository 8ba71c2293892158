//! The bench of SQLite: a file in a folder of its own.

use std::time::Duration;

use outbox::schema::{Database, migrate_tables};
use outbox::testing::store::SqliteStore;
use outbox::{Publisher, Row, TableNames};
use outbox_tests::backend;
use outbox_tests::sqlite::SqliteFile;
use sqlx::sqlite::SqlitePool;
use sqlx::{AssertSqlSafe, Row as _, Transaction};

use super::raw::{json, quoted, read_letter, read_row};
use super::sql::in_sql;
use super::{Bench, RawLetter, RawRow, SqlBench, execute};

const NOW: &str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";

#[derive(Clone)]
pub struct Sqlite {
    file: SqliteFile,
    names: TableNames,
    publisher: Publisher,
    store: SqliteStore,
}

impl Sqlite {
    fn on(file: SqliteFile, names: TableNames) -> Self {
        let publisher = Publisher::new(names.clone());
        let store = SqliteStore::new(&file.pool, names.clone());
        Self { file, names, publisher, store }
    }

    fn table(&self) -> String {
        quoted(self.names.table())
    }

    fn dlq(&self) -> String {
        quoted(self.names.dlq().unwrap_or("outbox_dlq"))
    }
}

impl Bench for Sqlite {
    type Store = SqliteStore;
    type Tx = Transaction<'static, sqlx::Sqlite>;
    type Mark = ();

    const WRITERS_OVERLAP: bool = false;

    in_sql!(Bench);

    async fn open() -> Option<Self> {
        if !backend::require("sqlite") {
            return None;
        }
        let names = TableNames::default().with_dlq("outbox_dlq").unwrap();
        let bench = Self::on(SqliteFile::fresh().await, names);
        migrate_tables(&bench.file.pool, &bench.names).await.unwrap();
        Some(bench)
    }

    async fn close(&self) {
        outbox::testing::store::Store::close(&self.store).await;
        self.file.drop().await;
    }

    fn without_dlq(&self) -> Self {
        Self::on(self.file.clone(), TableNames::default())
    }

    async fn begin(&self) -> Self::Tx {
        outbox::sqlite::begin(&self.file.pool).await.unwrap()
    }

    async fn rows(&self) -> Vec<RawRow> {
        let sql = format!(
            "SELECT id, queue, payload, headers, attempts_count, deliveries_count, created_at, \
                next_attempt_at, first_attempt_at, last_attempt_at, acquired_at, acquired_token, \
                timer_id \
             FROM {} ORDER BY id",
            self.table()
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&self.file.pool).await.unwrap();
        rows.iter().map(|row| read_row!(row)).collect()
    }

    async fn letters(&self) -> Vec<RawLetter> {
        let sql = format!(
            "SELECT id, original_id, queue, payload, headers, deliveries_count, created_at, \
                failed_at, failure_reason, last_exception, timer_id, error_kind, note, \
                fingerprint \
             FROM {} ORDER BY id",
            self.dlq()
        );
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&self.file.pool).await.unwrap();
        rows.iter().map(|row| read_letter!(row)).collect()
    }

    async fn now(&self) -> i64 {
        self.number(&format!("SELECT {NOW}")).await
    }

    async fn age(&self, by: Duration) {
        let (table, dlq, by) = (self.table(), self.dlq(), by.as_micros());
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
        let sql = format!("UPDATE {} SET headers = ?1 WHERE id = ?2", self.table());
        let set = sqlx::query(AssertSqlSafe(sql)).bind(headers).bind(id);
        set.execute(&self.file.pool).await.unwrap();
    }

    async fn refuse_letters_of(&self, queue: &str) {
        self.execute(&format!(
            "CREATE TRIGGER refuse BEFORE INSERT ON outbox_dlq WHEN NEW.queue = '{queue}' \
             BEGIN SELECT RAISE(ABORT, 'refused'); END"
        ))
        .await;
    }
}

impl SqlBench for Sqlite {
    type Database = sqlx::Sqlite;
    type Pool = SqlitePool;

    const DATABASE: Database = Database::Sqlite;

    in_sql!(SqlBench);

    fn pool(&self) -> &SqlitePool {
        &self.file.pool
    }

    fn with_names(&self, names: TableNames) -> Self {
        Self::on(self.file.clone(), names)
    }

    async fn execute(&self, sql: &str) {
        // A read makes the connection notice which tables others made and dropped; DDL
        // alone goes by what it knew.
        let look = "SELECT count(*) FROM sqlite_master";
        execute(&self.file.pool, &format!("{look}; {sql}")).await;
    }
}
