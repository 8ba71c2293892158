//! Making the tables.

use sqlx::AssertSqlSafe;
use sqlx::migrate::MigrateError;
use sqlx::postgres::PgPool;

use super::validate::validate;
use crate::error::{StoreError, has_code};
use crate::ops::begun::begun;
use crate::schema::{SchemaMismatch, migrator, sealed};
use crate::store::names::TableNames;

/// In order; the first has the number 1.
const MIGRATIONS: &[&str] = &[
    include_str!("../../../migrations/postgres/0001_outbox.sql"),
    include_str!("../../../migrations/postgres/0002_hot_claims.sql"),
    include_str!("../../../migrations/postgres/0003_operations.sql"),
];

/// The SQL that makes the tables; it can be repeated.
pub(crate) fn sql(names: &TableNames) -> String {
    names.sql(&MIGRATIONS.join("\n")).to_string()
}

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
        let failed = StoreError::of("look at the tables");
        let found = async { validate(&mut *self.acquire().await?, names, vacuum).await };
        found.await.map_err(failed)
    }
}

/// A snapshot of the whole transaction, which the database's default may ask for, would be
/// taken before the lock is waited for, and not see what the one before has made.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// Apps go on meanwhile. A statement of theirs locks a table to read it, and then to write to
/// it: in between it may wait for a migration that waits for it. The server ends one of them.
const TRIES: usize = 5;

async fn migrate(pool: &PgPool, names: &TableNames) -> Result<(), StoreError> {
    for _ in 1..TRIES {
        match try_to_migrate(pool, names).await {
            Err(failed) if is_deadlock(&failed) => {}
            done => return done,
        }
    }
    try_to_migrate(pool, names).await
}

fn is_deadlock(failed: &StoreError) -> bool {
    let error = match failed.source.downcast_ref() {
        Some(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)) => {
            Some(error)
        }
        _ => failed.source.downcast_ref(),
    };
    error.is_some_and(|error| has_code(error, &["40P01"]))
}

/// Runs the migrations in one transaction, under a lock that ends with it: a
/// session lock would outlive a cancelled call.
async fn try_to_migrate(pool: &PgPool, names: &TableNames) -> Result<(), StoreError> {
    let failed = StoreError::of;
    let migrator = migrator(names, MIGRATIONS);
    let users = pool.clone();
    let mut tx = begun("migrate", async move { users.begin_with(BEGIN).await }).await?;
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
    let tables = names.tables().map(|table| names.qualified(&table)).to_vec();
    let made: bool = sqlx::query_scalar(
        "SELECT bool_and(to_regclass(name) IS NOT NULL) FROM unnest($1) AS name",
    )
    .bind(tables)
    .fetch_one(&mut *tx)
    .await
    .map_err(failed("migrate"))?;
    if !made {
        sqlx::raw_sql(AssertSqlSafe(sql(names)))
            .execute(&mut *tx)
            .await
            .map_err(failed("migrate"))?;
    }
    tx.commit().await.map_err(failed("migrate"))
}
