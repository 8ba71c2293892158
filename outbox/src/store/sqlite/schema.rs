//! Making the tables.

use std::borrow::Cow;
use std::sync::Arc;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::SqlitePool;
use sqlx::{AssertSqlSafe, SqlSafeStr};

use super::validate::validate;
use crate::error::StoreError;
use crate::schema::{SchemaMismatch, sealed};
use crate::store::names::TableNames;

pub(crate) const MIGRATION: &str = include_str!("../../../migrations/sqlite/0001_outbox.sql");

impl sealed::Pool for SqlitePool {
    async fn migrate(&self, names: &TableNames) -> Result<(), StoreError> {
        migrate(self, names).await
    }

    async fn validate(&self, names: &TableNames, _: bool) -> Result<SchemaMismatch, StoreError> {
        validate(self, names).await
    }
}

/// Runs the migrations in one transaction that has the write lock.
pub(super) async fn migrate(pool: &SqlitePool, names: &TableNames) -> Result<(), StoreError> {
    let failed = StoreError::of;
    let sql = names.sql(MIGRATION);
    let text = AssertSqlSafe(Arc::clone(&sql)).into_sql_str();
    let mut migration =
        Migration::new(1, Cow::Borrowed("outbox"), MigrationType::Simple, text, false);
    // Of the file, not of the text with names in it: with another dead-letter
    // table, or the schema named or left to the search path, it is the same.
    let file = Migration::new(
        1,
        Cow::Borrowed(""),
        MigrationType::Simple,
        MIGRATION.into_sql_str(),
        false,
    );
    migration.checksum = file.checksum;
    let mut migrator = Migrator::with_migrations(vec![migration]);
    migrator.dangerous_set_table_name(names.version_table());
    migrator.set_locking(false);
    let mut tx = pool.begin_with("BEGIN IMMEDIATE").await.map_err(failed("migrate"))?;
    // `run` does not compile in a future that is `Send` ("implementation of `Acquire`
    // is not general enough"); sqlx offers this against it.
    let ran = migrator.run_direct(None, &mut *tx, false).await;
    ran.map_err(|error| StoreError::new("migrate", error, false))?;
    // Applied before, for other tables with the same record, or they were dropped
    // since. The statements can be repeated.
    let made: bool = sqlx::query_scalar(
        "SELECT count(*) = 2 FROM sqlite_master \
         WHERE type = 'table' AND lower(name) IN (lower(?1), lower(?2))",
    )
    .bind(names.table().to_owned())
    .bind(names.dlq_or_default())
    .fetch_one(&mut *tx)
    .await
    .map_err(failed("migrate"))?;
    if !made {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await.map_err(failed("migrate"))?;
    }
    tx.commit().await.map_err(failed("migrate"))
}
