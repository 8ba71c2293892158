//! Making the tables.

use sqlx::AssertSqlSafe;
use sqlx::postgres::PgPool;

use super::validate::validate;
use crate::error::StoreError;
use crate::schema::{SchemaMismatch, joined, migrator, sealed};
use crate::store::names::TableNames;

/// In order; the first has the number 1.
pub(crate) const MIGRATIONS: &[&str] = &[
    include_str!("../../../migrations/postgres/0001_outbox.sql"),
    include_str!("../../../migrations/postgres/0002_hot_claims.sql"),
];
/// Any number will do, as long as it is ours: serialises migrations.
const MIGRATION_LOCK: i64 = 0x006f_7574_626f_7831;

impl sealed::Pool for PgPool {
    async fn migrate(&self, names: &TableNames) -> Result<(), StoreError> {
        migrate(self, names).await
    }

    async fn validate(
        &self,
        names: &TableNames,
        vacuum: bool,
    ) -> Result<SchemaMismatch, StoreError> {
        validate(self, names, vacuum).await
    }
}

/// Runs the migrations in one transaction, under a lock that ends with it: a
/// session lock would outlive a cancelled call.
async fn migrate(pool: &PgPool, names: &TableNames) -> Result<(), StoreError> {
    let failed = StoreError::of;
    let migrator = migrator(names, MIGRATIONS);
    let mut tx = pool.begin().await.map_err(failed("migrate"))?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(MIGRATION_LOCK)
        .execute(&mut *tx)
        .await
        .map_err(failed("migrate"))?;
    // `run` does not compile in a future that is `Send` ("implementation of `Acquire`
    // is not general enough"); sqlx offers this against it.
    let ran = migrator.run_direct(None, &mut *tx, false).await;
    ran.map_err(|error| StoreError::new("migrate", error, false))?;
    // Applied before, for other tables with the same record, or they were dropped
    // since. The statements can be repeated.
    let (table, dlq) = (names.qualified(names.table()), names.qualified(&names.dlq_or_default()));
    let made: bool =
        sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL AND to_regclass($2) IS NOT NULL")
            .bind(table)
            .bind(dlq)
            .fetch_one(&mut *tx)
            .await
            .map_err(failed("migrate"))?;
    if !made {
        let sql = joined(names, MIGRATIONS);
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await.map_err(failed("migrate"))?;
    }
    tx.commit().await.map_err(failed("migrate"))
}
