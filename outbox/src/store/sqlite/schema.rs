//! Making the tables: the migrations, and the SQL for those who run it themselves. The migrations
//! run in one transaction that holds the write lock. Where nothing is left to do, they do not wait
//! for that lock.

use std::time::{Duration, Instant};

use sqlx::migrate::{Migrate as _, MigrateError};
use sqlx::sqlite::{SqliteConnection, SqlitePool};
use sqlx::{AssertSqlSafe, SqlSafeStr as _};
use tokio::time::sleep;

use super::connect::{begin_writing, is_busy};
use super::taken::taken;
use super::validate::validate;
use crate::error::StoreError;
use crate::schema::{SchemaMismatch, migrator, not_migrated, sealed};
use crate::store::names::TableNames;

/// The migrations in order; the first has the number 1.
const MIGRATIONS: &[&str] = &[
    include_str!("../../../migrations/sqlite/0001_outbox.sql"),
    include_str!("../../../migrations/sqlite/0002_hot_claims.sql"),
    include_str!("../../../migrations/sqlite/0003_operations.sql"),
];
/// The one statement of the migrations that cannot be repeated: SQLite has no ADD COLUMN IF NOT
/// EXISTS. It is left out for a table that has the column.
const LINK: &str = "ALTER TABLE \"outbox_dlq\" ADD COLUMN replayed_id INTEGER;\n";

/// The SQL that makes the tables; it can be repeated, and changes none that is there.
pub(crate) fn sql(names: &TableNames) -> String {
    names.sql(&every_table()).to_string()
}

/// As [`sql`], for the default names.
pub(super) fn every_table() -> String {
    let last = "    fingerprint TEXT\n)";
    let linked = "    fingerprint TEXT,\n    replayed_id INTEGER\n)";
    MIGRATIONS.join("\n").replace(LINK, "").replace(last, linked)
}

impl sealed::Pool for SqlitePool {
    async fn migrate(&self, names: &TableNames) -> Result<(), StoreError> {
        migrate(self, names).await
    }

    async fn validate(&self, names: &TableNames, _: bool) -> Result<SchemaMismatch, StoreError> {
        validate(self, names).await
    }
}

/// How long a migration waits for others who write.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between tries, in addition to what the pool's connections wait by themselves.
const AGAIN: Duration = Duration::from_millis(50);

/// Runs the migrations in one transaction that has the write lock.
pub(super) async fn migrate(pool: &SqlitePool, names: &TableNames) -> Result<(), StoreError> {
    let failed = StoreError::of;
    if is_done(pool, names).await {
        return Ok(());
    }
    let begun = Instant::now();
    let mut tx = loop {
        match begin_writing(pool).await {
            Err(error) if is_busy(&error) && begun.elapsed() < PATIENCE => sleep(AGAIN).await,
            begun => break begun.map_err(failed("migrate"))?,
        }
    };
    refuse_taken(&mut tx, names).await?;
    let letters = names.dlq_or_default();
    let linked =
        "SELECT count(*) > 0 FROM pragma_table_info(?1, 'main') WHERE name = 'replayed_id'";
    let linked = sqlx::query_scalar(linked).bind(letters).fetch_one(&mut *tx).await;
    let mut migrator = migrator(names, MIGRATIONS);
    if linked.map_err(failed("migrate"))? {
        let link = names.sql(LINK);
        for migration in migrator.migrations.to_mut() {
            let without = migration.sql.as_str().replace(&*link, "");
            migration.sql = AssertSqlSafe(without).into_sql_str();
        }
    }
    // `run` does not compile in a future that is `Send` ("implementation of `Acquire`
    // is not general enough"); sqlx offers this against it.
    let ran = migrator.run_direct(None, &mut *tx, false).await;
    ran.map_err(not_migrated(names))?;
    // The migrations may have been recorded for other tables with the same record, or the tables
    // were dropped since. The statements can be repeated.
    if !are_made(&mut tx, names).await.map_err(failed("migrate"))? {
        sqlx::raw_sql(AssertSqlSafe(sql(names)))
            .execute(&mut *tx)
            .await
            .map_err(failed("migrate"))?;
    }
    tx.commit().await.map_err(failed("migrate"))
}

/// Fails if an index of another table has the name of one that is to be made: that would not be
/// made.
async fn refuse_taken(
    connection: &mut SqliteConnection,
    names: &TableNames,
) -> Result<(), StoreError> {
    let taken = taken(connection, names).await.map_err(StoreError::of("migrate"))?;
    let each: Vec<_> = (taken.iter())
        .map(|(one, freeing)| format!("{} of {} (`{freeing}`)", one.name, one.table))
        .collect();
    if each.is_empty() {
        return Ok(());
    }
    let why = format!(
        "indexes of other tables have the names of those to be made: {}: make them anew under the \
         names of their tables, because SQLite cannot rename them, and migrate again",
        each.join(", ")
    );
    Err(StoreError::new("migrate", why, false))
}

/// Whether nothing is left to do: a start must not wait for others who write.
async fn is_done(pool: &SqlitePool, names: &TableNames) -> bool {
    let looks = async {
        let mut connection = pool.acquire().await?;
        let version_table = names.version_table();
        let applied = connection.list_applied_migrations(&version_table).await?;
        let all = migrator(names, MIGRATIONS);
        let known = all.iter().all(|one| {
            applied.iter().any(|it| (it.version, &it.checksum) == (one.version, &one.checksum))
        });
        Ok::<_, MigrateError>(known && are_made(&mut connection, names).await?)
    };
    // If this look fails, the migration itself says why.
    looks.await.unwrap_or(false)
}

/// Whether the tables are there, whatever the record says.
async fn are_made(
    connection: &mut SqliteConnection,
    names: &TableNames,
) -> Result<bool, sqlx::Error> {
    let [table, letters, paused] = names.tables();
    sqlx::query_scalar(
        "SELECT count(*) = 3 FROM sqlite_master \
         WHERE type = 'table' AND lower(name) IN (lower(?1), lower(?2), lower(?3))",
    )
    .bind(table)
    .bind(letters)
    .bind(paused)
    .fetch_one(connection)
    .await
}
