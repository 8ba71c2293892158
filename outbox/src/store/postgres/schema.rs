//! Making the tables.

use std::time::Duration;

use sqlx::migrate::{Migrate as _, MigrateError};
use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{AssertSqlSafe, Executor as _, SqlSafeStr as _};

use super::desk::PATIENCE;
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

/// Of the statements, those that make an index of the outbox: it takes as long as the table is
/// large, and nobody publishes or claims meanwhile. This one the next makes anew.
const FIRST_DUE: &str = "CREATE INDEX IF NOT EXISTS \"outbox_due_idx\" ON \"outbox\" \
    (queue, next_attempt_at, id);\n";
const DUE: &str = "DROP INDEX IF EXISTS \"outbox_due_idx\";
CREATE INDEX \"outbox_due_idx\" ON \"outbox\" (queue, next_attempt_at, id)
    WHERE next_attempt_at IS NOT NULL;
";
/// Where it is there, it would still lock the table, until all is done.
const TIMERS: &str = "CREATE UNIQUE INDEX IF NOT EXISTS \"outbox_timer_id_uq\" ON \"outbox\" \
    (queue, timer_id)\n    WHERE timer_id IS NOT NULL;\n";
/// Where the table has both kinds, it has been given these, or its owner's own.
const SETTINGS: [&str; 2] = [
    "ALTER TABLE \"outbox\" SET (
    fillfactor = 60,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);\n",
    "ALTER TABLE \"outbox\" SET (fillfactor = 45);\n",
];
/// But for those of the first version.
const ARE_SET: &str = "SELECT count(*) = 2 FROM pg_class, pg_options_to_table(reloptions) \
    WHERE oid = to_regclass($1) AND (option_name = 'autovacuum_vacuum_threshold' \
        OR option_name = 'fillfactor' AND option_value <> '60')";
/// Whether an index is there, and as it has to be.
const INDEX: &str = "SELECT to_regclass($1) IS NOT NULL, EXISTS (SELECT FROM pg_index \
    WHERE indexrelid = to_regclass($1) AND indisvalid AND indnatts = $2 AND indpred IS NOT NULL)";
const THERE: &str = "SELECT to_regclass($1) IS NOT NULL";
/// All that a migration will hold, at first and in the order of who buries a message there: one
/// that took more as it goes on would wait for statements that wait for it, for a lock or after
/// minutes of work. Nobody is kept from reading the outbox, but to drop an index.
const LOCK_LETTERS: &str = "LOCK TABLE \"outbox_dlq\" IN ACCESS EXCLUSIVE MODE";
const LOCK: &str = "LOCK TABLE \"outbox\" IN SHARE ROW EXCLUSIVE MODE";
const LOCK_ALL: &str = "LOCK TABLE \"outbox\" IN ACCESS EXCLUSIVE MODE";
/// For the second of them: one that locks the outbox first may wait for it, and the server would
/// end that one.
const HASTE: &str = "SELECT set_config('lock_timeout', greatest(1, floor(extract(epoch FROM least( \
    current_setting('lock_timeout')::interval, current_setting('deadlock_timeout')::interval / 2 \
    )) * 1000)) || 'ms', true)";
/// The last migration that makes an index of the outbox.
const INDEXED: i64 = 2;
/// New tables go where those are that are there, not before them in the path.
pub(super) const WHERE_THEY_ARE: &str = "SELECT set_config('search_path', \
        quote_ident(n.nspname) || ', ' || current_setting('search_path'), true) \
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace \
    WHERE c.oid = to_regclass($1) AND n.nspname IS DISTINCT FROM current_schema()";

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
        const ACTION: &str = "look at the tables";
        let users = self.clone();
        let mut tx = begun(ACTION, async move { users.begin_with(BEGIN).await }).await?;
        // What an index says of itself waits for whoever changes its table.
        tx.execute(PATIENCE).await.map_err(StoreError::of(ACTION))?;
        validate(&mut tx, names, vacuum).await.map_err(StoreError::of(ACTION))
    }
}

/// A snapshot of the whole transaction, which the database's default may ask for, would be
/// taken before the lock is waited for, and not see what the one before has made.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// Apps go on meanwhile. A statement of theirs locks a table to read it, and then to write to
/// it: in between it may wait for a migration that waits for it. The server ends one of them.
const TRIES: usize = 5;

/// Everybody who writes waits behind a migration that waits for a transaction which has
/// written: it stands aside when its [`PATIENCE`] is over, and tries again. For whoever has to
/// end one, or to see how another migration gets on.
const LONG: &str = "SELECT pid, query FROM pg_stat_activity \
    WHERE xact_start < now() - interval '1 minute'";
/// About a minute: five of them are the time for which it waits, one that for which it steps
/// aside.
const WAITS: u32 = 60;
/// Those who waited are through in less.
const ASIDE: Duration = Duration::from_millis(500);

async fn migrate(pool: &PgPool, names: &TableNames) -> Result<(), StoreError> {
    let (mut tries, mut waits, mut was_alone) = (1, 1, false);
    loop {
        let mut aside = false;
        match try_to_migrate(pool, names, &mut was_alone, &mut aside).await {
            Err(failed) if is(&failed, "40P01") && tries < TRIES => tries += 1,
            Err(failed) if is(&failed, "55P03") && waits < WAITS => {
                waits += if aside { 1 } else { 5 };
                tokio::time::sleep(ASIDE).await;
            }
            Err(failed) if is(&failed, "55P03") => {
                let (why, table) = (&failed.source, names.table());
                let text = if was_alone {
                    format!(
                        "{why}; a transaction that has used a table of `{table}` is not over: end \
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

fn is(failed: &StoreError, code: &str) -> bool {
    let error = match failed.source.downcast_ref() {
        Some(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)) => {
            Some(error)
        }
        _ => failed.source.downcast_ref(),
    };
    error.is_some_and(|error| has_code(error, &[code]))
}

/// Lets new tables come to lie beside the old ones, locks those that get an index, and says
/// which statements are not to be run. Notes when it steps aside soon.
async fn prepare(
    tx: &mut PgConnection,
    names: &TableNames,
    aside: &mut bool,
) -> Result<Vec<&'static str>, sqlx::Error> {
    let [table, letters, _] = names.tables().map(|table| names.qualified(&table));
    if names.schema().is_none() {
        sqlx::query(WHERE_THEY_ARE).bind(&table).execute(&mut *tx).await?;
    }
    let index = async |tx: &mut PgConnection, suffix, columns: i16| {
        let name = names.qualified(&[names.table(), suffix].concat());
        sqlx::query_as::<_, (bool, bool)>(INDEX).bind(name).bind(columns).fetch_one(tx).await
    };
    let (some_due, due) = index(tx, "_due_idx", 3).await?;
    let (_, timers) = index(tx, "_timer_id_uq", 2).await?;
    let is = async |tx: &mut PgConnection, asked, table: &String| {
        sqlx::query_scalar::<_, bool>(asked).bind(table).fetch_one(tx).await
    };
    let [is_there, has_letters] = [is(tx, THERE, &table).await?, is(tx, THERE, &letters).await?];
    if is_there && !(due && timers) && !(has_letters && are_applied(tx, names).await?) {
        if has_letters {
            tx.execute(AssertSqlSafe(names.sql(LOCK_LETTERS))).await?;
        }
        tx.execute(HASTE).await?;
        let lock = if some_due && !due { LOCK_ALL } else { LOCK };
        let locked = tx.execute(AssertSqlSafe(names.sql(lock))).await;
        locked.inspect_err(|_| *aside = true)?;
    }
    let set = is(tx, ARE_SET, &table).await?;
    let [first, second] = SETTINGS;
    let made = [(true, FIRST_DUE), (due, DUE), (timers, TIMERS), (set, first), (set, second)];
    Ok(made.into_iter().filter(|(made, _)| *made).map(|(_, statement)| statement).collect())
}

/// Whether the indexes of the outbox were made before, whatever became of them.
async fn are_applied(tx: &mut PgConnection, names: &TableNames) -> Result<bool, sqlx::Error> {
    let record = names.version_table();
    if !sqlx::query_scalar::<_, bool>(THERE).bind(&record).fetch_one(&mut *tx).await? {
        return Ok(false);
    }
    let applied = tx.list_applied_migrations(&record).await.map_err(|failed| match failed {
        MigrateError::Execute(error) => error,
        other => sqlx::Error::Migrate(Box::new(other)),
    })?;
    Ok(applied.iter().any(|one| one.version >= INDEXED))
}

/// Runs the migrations in one transaction, under a lock that ends with it: a
/// session lock would outlive a cancelled call. Notes when no other migration runs.
async fn try_to_migrate(
    pool: &PgPool,
    names: &TableNames,
    is_alone: &mut bool,
    aside: &mut bool,
) -> Result<(), StoreError> {
    let failed = StoreError::of;
    let mut migrator = migrator(names, MIGRATIONS);
    let users = pool.clone();
    let mut tx = begun("migrate", async move { users.begin_with(BEGIN).await }).await?;
    tx.execute(PATIENCE).await.map_err(failed("migrate"))?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)")
        .bind(MIGRATION_LOCK)
        .execute(&mut *tx)
        .await
        .map_err(failed("migrate"))?;
    *is_alone = true;
    let made = prepare(&mut tx, names, aside).await.map_err(failed("migrate"))?;
    let without = |text: &str| {
        let left =
            made.iter().fold(text.to_owned(), |text, made| text.replace(&*names.sql(made), ""));
        AssertSqlSafe(left)
    };
    for migration in migrator.migrations.to_mut() {
        migration.sql = without(migration.sql.as_str()).into_sql_str();
    }
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
        sqlx::raw_sql(without(&sql(names))).execute(&mut *tx).await.map_err(failed("migrate"))?;
    }
    tx.commit().await.map_err(failed("migrate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that is written otherwise would be run all the same.
    #[test]
    fn what_may_be_left_out_stands_in_the_migrations() {
        for statement in [FIRST_DUE, DUE, TIMERS, SETTINGS[0], SETTINGS[1]] {
            assert_eq!(MIGRATIONS.concat().matches(statement).count(), 1, "{statement}");
        }
    }
}
