//! Making the tables.

use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqlitePool;

use super::validate::validate;
use crate::error::StoreError;
use crate::schema::{SchemaMismatch, joined, migrator, sealed};
use crate::store::names::TableNames;

/// In order; the first has the number 1.
pub(crate) const MIGRATIONS: &[&str] = &[
    include_str!("../../../migrations/sqlite/0001_outbox.sql"),
    include_str!("../../../migrations/sqlite/0002_hot_claims.sql"),
];

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
    let migrator = migrator(names, MIGRATIONS);
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
        let sql = joined(names, MIGRATIONS);
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await.map_err(failed("migrate"))?;
    }
    tx.commit().await.map_err(failed("migrate"))
}
