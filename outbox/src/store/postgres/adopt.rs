//! What a migration does to an outbox that is already there. It does so in a transaction of its
//! own, which locks no other table. So whoever it waits for can wait for nothing that it holds, and
//! the table is free again before the indexes of many letters are made.

use sqlx::migrate::{Migrate as _, MigrateError};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Executor as _};

use super::indexes::Index;
use super::validate::Look;
use crate::store::names::TableNames;

/// These statements of the migrations make an index of the outbox. That takes as long as the table
/// is large, and nobody publishes or claims meanwhile. The next statement makes this index anew.
const FIRST_DUE: &str = "CREATE INDEX IF NOT EXISTS \"outbox_due_idx\" ON \"outbox\" \
    (queue, next_attempt_at, id);\n";
const DUE: &str = "DROP INDEX IF EXISTS \"outbox_due_idx\";
CREATE INDEX \"outbox_due_idx\" ON \"outbox\" (queue, next_attempt_at, id)
    WHERE next_attempt_at IS NOT NULL;
";
/// Even where the index is there, this would lock the table until everything is done.
const TIMERS: &str = "CREATE UNIQUE INDEX IF NOT EXISTS \"outbox_timer_id_uq\" ON \"outbox\" \
    (queue, timer_id)\n    WHERE timer_id IS NOT NULL;\n";
/// Of these settings an outbox that is there is given those that nobody has set.
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
const SET: &str = "ALTER TABLE \"outbox\" SET ({options})";
/// The names of the options that are set, except for the value that the first version sets.
const ARE_SET: &str = "SELECT option_name FROM pg_class, pg_options_to_table(reloptions) \
    WHERE oid = to_regclass($1) AND (option_name <> 'fillfactor' OR option_value <> '60')";
const THERE: &str = "SELECT to_regclass($1) IS NOT NULL";
/// Taken first, because it keeps no writer waiting: the server ends an autovacuum for it, but takes
/// a second to begin with that.
const LOCK_VACUUM: &str = "LOCK TABLE \"outbox\" IN SHARE UPDATE EXCLUSIVE MODE";
/// Keeps nobody from reading. Dropping an index takes the lock below.
const LOCK: &str = "LOCK TABLE \"outbox\" IN SHARE ROW EXCLUSIVE MODE";
const LOCK_ALL: &str = "LOCK TABLE \"outbox\" IN ACCESS EXCLUSIVE MODE";
/// The last migration that changes an outbox.
const CHANGED: i64 = 2;

/// The statements that the migrations must leave out: all that would change an outbox which is
/// there.
pub(super) async fn left_out(
    tx: &mut PgConnection,
    names: &TableNames,
) -> Result<&'static [&'static str], sqlx::Error> {
    const ALL: &[&str] = &[FIRST_DUE, DUE, TIMERS, SETTINGS[0], SETTINGS[1]];
    let table = names.qualified(names.table());
    Ok(if is_there(tx, &table).await? { ALL } else { &[FIRST_DUE] })
}

/// Gives an outbox that is there the indexes and settings that it lacks. False if it lacks none, is
/// not there, or had them once, whatever has become of them.
pub(super) async fn adopt(tx: &mut PgConnection, names: &TableNames) -> Result<bool, sqlx::Error> {
    let table = names.qualified(names.table());
    if !is_there(tx, &table).await? || are_applied(tx, names, CHANGED).await? {
        return Ok(false);
    }
    let some_due = is_there(tx, &names.qualified(&[names.table(), "_due_idx"].concat())).await?;
    // Whatever their names: a table that was renamed has those that it was made with.
    let mut there = Look::new(&mut *tx, names, false);
    there.table = table.clone();
    let [due, timers] = there.has([Index::due(names), Index::timers(names)]).await?;
    let set: Vec<String> = sqlx::query_scalar(ARE_SET).bind(&table).fetch_all(&mut *tx).await?;
    let lacks = SETTINGS.map(|settings| unset(settings, &set));
    if due && timers && lacks.iter().all(String::is_empty) {
        return Ok(false);
    }
    tx.execute(AssertSqlSafe(names.sql(LOCK_VACUUM))).await?;
    if !(due && timers) {
        let lock = if some_due && !due { LOCK_ALL } else { LOCK };
        tx.execute(AssertSqlSafe(names.sql(lock))).await?;
    }
    for options in lacks.iter().filter(|options| !options.is_empty()) {
        let set = names.sql_with(SET, &[("{options}", options)]);
        tx.execute(AssertSqlSafe(set)).await?;
    }
    for (is_made, statement) in [(due, DUE), (timers, TIMERS)] {
        if !is_made {
            sqlx::raw_sql(AssertSqlSafe(names.sql(statement))).execute(&mut *tx).await?;
        }
    }
    Ok(true)
}

/// The options of a statement that are not set.
fn unset(settings: &str, set: &[String]) -> String {
    let options = settings.split_once('(').and_then(|(_, options)| options.split_once(')'));
    let options = options.map_or("", |(options, _)| options).split(',').map(str::trim);
    let is_set = |option: &&str| set.iter().any(|name| option.split(' ').next() == Some(name));
    options.filter(|option| !is_set(option)).collect::<Vec<_>>().join(", ")
}

async fn is_there(tx: &mut PgConnection, table: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(THERE).bind(table).fetch_one(tx).await
}

/// Whether all tables are there, and the migrations up to this one have run.
pub(super) async fn is_done(
    tx: &mut PgConnection,
    names: &TableNames,
    last: i64,
) -> Result<bool, sqlx::Error> {
    let table = names.qualified(names.table());
    Ok(is_there(tx, &table).await? && are_applied(tx, names, last).await?)
}

/// Whether the other tables are there, and a migration that is this one or a later has run.
async fn are_applied(
    tx: &mut PgConnection,
    names: &TableNames,
    last: i64,
) -> Result<bool, sqlx::Error> {
    let record = names.version_table();
    let [_, others @ ..] = names.tables().map(|table| names.qualified(&table));
    for table in others.iter().chain([&record]) {
        if !is_there(tx, table).await? {
            return Ok(false);
        }
    }
    let applied = tx.list_applied_migrations(&record).await.map_err(|failed| match failed {
        MigrateError::Execute(error) => error,
        other => sqlx::Error::Migrate(Box::new(other)),
    })?;
    Ok(applied.iter().any(|one| one.version >= last))
}

#[cfg(test)]
mod tests {
    use super::super::schema::MIGRATIONS;
    use super::*;

    /// A statement that is written otherwise would be run all the same.
    #[test]
    fn what_may_be_left_out_stands_in_the_migrations() {
        for statement in [FIRST_DUE, DUE, TIMERS, SETTINGS[0], SETTINGS[1]] {
            assert_eq!(MIGRATIONS.concat().matches(statement).count(), 1, "{statement}");
        }
    }

    #[test]
    fn options_are_left_out_by_their_names() {
        assert_eq!(unset(SETTINGS[1], &[]), "fillfactor = 45");
        assert_eq!(unset(SETTINGS[1], &["fillfactor".into()]), "");
        let most = ["fillfactor", "autovacuum_vacuum_scale_factor", "autovacuum_vacuum_threshold"];
        let left = unset(SETTINGS[0], &most.map(Into::into));
        assert_eq!(
            left,
            "autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 1000, \
             autovacuum_vacuum_cost_delay = 0"
        );
    }
}
