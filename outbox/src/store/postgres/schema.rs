//! Making the tables: the migrations, and the SQL for those who run it themselves. Migrations of
//! several processes run one after the other. Apps go on meanwhile, so a migration that has to wait
//! stands aside and tries again.

use std::time::Duration;

use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{AssertSqlSafe, Executor as _, Postgres, SqlSafeStr as _, Transaction};

use super::adopt::{adopt, is_done, left_out};
use super::desk::PATIENCE;
use super::taken::taken;
use super::validate::Look;
use crate::error::{StoreError, Told};
use crate::ops::begun::begun;
use crate::schema::{SchemaMismatch, migrator, not_migrated, sealed};
use crate::store::names::TableNames;

/// The migrations in order; the first has the number 1.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("../../../migrations/postgres/0001_outbox.sql"),
    include_str!("../../../migrations/postgres/0002_hot_claims.sql"),
    include_str!("../../../migrations/postgres/0003_operations.sql"),
];

/// Puts the schema of the tables that are there first in the path, so that new tables go beside
/// them.
pub(super) const WHERE_THEY_ARE: &str = "SELECT set_config('search_path', \
        quote_ident(n.nspname) || ', ' || current_setting('search_path'), true) \
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
    WHERE c.oid = to_regclass($1) AND n.nspname IS DISTINCT FROM current_schema()";

/// The SQL that makes the tables; it can be repeated.
pub(crate) fn sql(names: &TableNames) -> String {
    names.sql(&MIGRATIONS.join("\n")).to_string()
}

/// Serialises migrations. Any number will do, as long as it is ours.
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
        const ACTION: &str = "look at the tables";
        let users = self.clone();
        let mut tx = begun(ACTION, async move { users.begin_with(BEGIN).await }).await?;
        // To describe an index, the server waits for whoever changes its table.
        tx.execute(PATIENCE).await.map_err(StoreError::of(ACTION))?;
        let looks = async {
            let mut look = Look::new(&mut tx, names, false);
            look.tables(vacuum).await?;
            look.rights().await?;
            look.ids().await?;
            Ok(look.found)
        };
        looks.await.map_err(StoreError::of(ACTION))
    }
}

/// READ COMMITTED, whatever the database's default is. A snapshot of the whole transaction would be
/// taken before the lock is waited for, and would not see what the migration before has made.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// How often a migration is tried when it meets a deadlock. Apps go on meanwhile. One of their
/// statements locks a table to read it, and then to write to it. In between it may wait for a
/// migration that waits for it, and the server ends one of them.
const TRIES: usize = 5;

/// Finds transactions that a migration may wait for. Everybody who writes waits behind a migration
/// that waits for a transaction which has written. So a migration stands aside when its
/// [`PATIENCE`] is over, and tries again. This is for whoever has to end such a transaction, or to
/// see how another migration gets on.
const LONG: &str = "SELECT pid, query FROM pg_stat_activity \
    WHERE xact_start < now() - interval '1 minute'";
/// How often it waits: for about a minute in all.
const WAITS: u32 = 12;
/// How long it stands aside. Those who waited are through in less.
const ASIDE: Duration = Duration::from_millis(500);

async fn migrate(pool: &PgPool, names: &TableNames) -> Result<(), StoreError> {
    let (mut tries, mut waits, mut was_alone) = (1, 1, false);
    loop {
        match try_to_migrate(pool, names, &mut was_alone).await {
            Err(failed) if failed.has_code(&["40P01"]) && tries < TRIES => tries += 1,
            Err(failed) if failed.has_code(&["55P03"]) && waits < WAITS => {
                waits += 1;
                tokio::time::sleep(ASIDE).await;
            }
            Err(failed) if failed.has_code(&["55P03"]) => {
                let (why, table) = (Told(&*failed.source), names.table());
                let text = if was_alone {
                    format!(
                        "{why}; a transaction that has used a table of `{table}` is still open: end \
                         it, and migrate again (`{LONG}` finds it)"
                    )
                } else {
                    format!(
                        "{why}; another migration runs, and may be making an index: migrate again \
                         when it has ended (`{LONG}` finds it)"
                    )
                };
                return Err(StoreError::new("migrate", text, true));
            }
            done => return done,
        }
    }
}

/// Begins a transaction that holds the lock until it ends: a session lock would outlive a cancelled
/// call. New tables will go beside the old ones. Notes that no other migration runs.
async fn locked(
    pool: &PgPool,
    names: &TableNames,
    is_alone: &mut bool,
) -> Result<Transaction<'static, Postgres>, StoreError> {
    let failed = StoreError::of;
    let users = pool.clone();
    let mut tx = begun("migrate", async move { users.begin_with(BEGIN).await }).await?;
    tx.execute(PATIENCE).await.map_err(failed("migrate"))?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(MIGRATION_LOCK)
        .execute(&mut *tx)
        .await
        .map_err(failed("migrate"))?;
    *is_alone = true;
    if names.schema().is_none() {
        let there = sqlx::query(WHERE_THEY_ARE).bind(names.qualified(names.table()));
        there.execute(&mut *tx).await.map_err(failed("migrate"))?;
    }
    Ok(tx)
}

/// Fails if an index of another table has the name of one that is to be made.
async fn refuse_taken(tx: &mut PgConnection, names: &TableNames) -> Result<(), StoreError> {
    let taken = taken(tx, names).await.map_err(StoreError::of("migrate"))?;
    if taken.is_empty() {
        return Ok(());
    }
    let each = taken.iter().map(|one| format!("{} of {} (`{}`)", one.index, one.table, one.mend));
    let why = format!(
        "indexes of other tables have the names of those to be made: {}: rename or drop them, and \
         migrate again",
        each.collect::<Vec<_>>().join(", ")
    );
    Err(StoreError::new("migrate", why, false))
}

/// Runs the migrations in one transaction. Before it, another one changes an outbox that is there.
async fn try_to_migrate(
    pool: &PgPool,
    names: &TableNames,
    is_alone: &mut bool,
) -> Result<(), StoreError> {
    let failed = StoreError::of;
    let mut migrator = migrator(names, MIGRATIONS);
    let mut tx = locked(pool, names, is_alone).await?;
    let last = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    if !is_done(&mut tx, names, last).await.map_err(failed("migrate"))? {
        refuse_taken(&mut tx, names).await?;
    }
    if adopt(&mut tx, names).await.map_err(failed("migrate"))? {
        tx.commit().await.map_err(failed("migrate"))?;
        tx = locked(pool, names, is_alone).await?;
    }
    let left_out = left_out(&mut tx, names).await.map_err(failed("migrate"))?;
    let without = |text: &str| {
        let left =
            left_out.iter().fold(text.to_owned(), |text, out| text.replace(&*names.sql(out), ""));
        AssertSqlSafe(left)
    };
    for migration in migrator.migrations.to_mut() {
        migration.sql = without(migration.sql.as_str()).into_sql_str();
    }
    // `run` does not compile in a future that is `Send` ("implementation of `Acquire`
    // is not general enough"); sqlx offers this against it.
    let ran = migrator.run_direct(None, &mut *tx, false).await;
    ran.map_err(not_migrated(names))?;
    // The migrations may have been recorded for other tables with the same record, or the tables
    // were dropped since. The statements can be repeated.
    let tables = names.tables().map(|table| names.qualified(&table)).to_vec();
    let made: bool = sqlx::query_scalar(
        "SELECT bool_and(to_regclass(name) IS NOT NULL) FROM unnest($1) AS name",
    )
    .bind(tables)
    .fetch_one(&mut *tx)
    .await
    .map_err(failed("migrate"))?;
    if !made {
        sqlx::raw_sql(without(&sql(names))).execute(&mut *tx).await.map_err(failed("migrate"))?;
    }
    tx.commit().await.map_err(failed("migrate"))
}
