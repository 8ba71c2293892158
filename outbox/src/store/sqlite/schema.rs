//! Migration and validation of the tables.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::sqlite::SqlitePool;
use sqlx::{AssertSqlSafe, Row as _, SqlSafeStr};

use crate::error::StoreError;
use crate::schema::{Column, DLQ, OUTBOX, SchemaMismatch, sealed};
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
async fn migrate(pool: &SqlitePool, names: &TableNames) -> Result<(), StoreError> {
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
    // Applied before, for another dead-letter table. Its statements can be repeated.
    let made: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?1)",
    )
    .bind(names.dlq_or_default())
    .fetch_one(&mut *tx)
    .await
    .map_err(failed("migrate"))?;
    if !made {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await.map_err(failed("migrate"))?;
    }
    tx.commit().await.map_err(failed("migrate"))
}

/// Compares the tables with what the statements need.
pub(super) async fn validate(
    pool: &SqlitePool,
    names: &TableNames,
) -> Result<SchemaMismatch, StoreError> {
    let mut found = SchemaMismatch::default();
    if let Some(schema) = names.schema() {
        let what = format!("SQLite has no schema {schema:?}");
        found.add(true, what, "name no schema (`OUTBOX_SCHEMA`)");
        return Ok(found);
    }
    if columns(pool, names.table(), &OUTBOX, &mut found).await? {
        for text in [
            "CREATE INDEX \"outbox_due_idx\" ON \"outbox\" (queue, next_attempt_at, id)",
            "CREATE UNIQUE INDEX \"outbox_timer_id_uq\" ON \"outbox\" (queue, timer_id) \
             WHERE timer_id IS NOT NULL",
        ] {
            index(pool, names.table(), &names.sql(text), &mut found).await?;
        }
        let made = definitions(pool, names.table(), "table").await?;
        let check = "CHECKacquired_tokenISNULL=acquired_atISNULL";
        if !made.iter().any(|sql| bare(sql).contains(check)) {
            let what = format!("{} lacks the CHECK that a lease is set whole", names.table());
            found.add(
                false,
                what,
                "make the table anew with `outbox::schema::sql` and copy the rows",
            );
        }
    }
    if let Some(dlq) = names.dlq()
        && columns(pool, dlq, &DLQ, &mut found).await?
    {
        let text =
            "CREATE INDEX \"outbox_dlq_queue_failed_idx\" ON \"outbox_dlq\" (queue, failed_at)";
        index(pool, dlq, &names.sql(text), &mut found).await?;
    }
    Ok(found)
}

/// False when the table does not exist.
async fn columns(
    pool: &SqlitePool,
    table: &str,
    expected: &[Column],
    found: &mut SchemaMismatch,
) -> Result<bool, StoreError> {
    let rows = sqlx::query("SELECT name, type, \"notnull\" OR pk > 0, dflt_value IS NOT NULL OR pk > 0 FROM pragma_table_info(?1)")
        .bind(table.to_owned())
        .fetch_all(pool)
        .await
        .map_err(StoreError::of("read the columns"))?;
    if rows.is_empty() {
        let mend = "run `outbox::migrate(&pool)`, or the SQL of `outbox::schema::sql`";
        found.add(true, format!("the table {table} does not exist"), mend);
        return Ok(false);
    }
    let mut actual: HashMap<String, (String, bool, bool)> =
        rows.iter().map(|row| (row.get(0), (row.get(1), row.get(2), row.get(3)))).collect();
    // SQLite alters no column in place.
    let anew = "make the table anew with `outbox::schema::sql` and copy the rows";
    for Column { name, sqlite: kind, not_null, default, .. } in expected {
        match actual.remove(*name) {
            None => {
                let null = if *not_null { " NOT NULL" } else { "" };
                let default =
                    if default.is_empty() { String::new() } else { format!(" DEFAULT {default}") };
                let mend =
                    format!("ALTER TABLE \"{table}\" ADD COLUMN {name} {kind}{null}{default}");
                found.add(true, format!("{table} has no column {name}"), mend);
            }
            Some((is, ..)) if !is.eq_ignore_ascii_case(kind) => {
                found.add(true, format!("{table}.{name} is {is} instead of {kind}"), anew);
            }
            Some((_, is_not_null, _)) if is_not_null != *not_null => {
                let is = if is_not_null { "NOT NULL" } else { "nullable" };
                found.add(!not_null, format!("{table}.{name} is {is}"), anew);
            }
            Some((.., false)) if !default.is_empty() => {
                found.add(true, format!("{table}.{name} has no default"), anew);
            }
            Some(_) => {}
        }
    }
    for (name, (_, not_null, has_default)) in actual {
        if not_null && !has_default {
            let what = format!(
                "{table} has a further column {name} without a default, which makes inserts fail"
            );
            found.add(true, what, anew);
        }
    }
    Ok(true)
}

/// Looks for an index that reads as `sql` does, whatever its name.
async fn index(
    pool: &SqlitePool,
    table: &str,
    sql: &str,
    found: &mut SchemaMismatch,
) -> Result<(), StoreError> {
    let shape = |sql: &str| {
        let (head, on) = sql.split_once(" ON ").unwrap_or((sql, ""));
        let on = on.split_once('(').map_or(on, |(_, columns)| columns);
        (head.to_uppercase().contains("UNIQUE"), bare(on))
    };
    if definitions(pool, table, "index").await?.iter().any(|made| shape(made) == shape(sql)) {
        return Ok(());
    }
    let name = sql.split('"').nth(1).unwrap_or_default();
    let taken = definitions(pool, table, "index").await?.iter().any(|made| made.contains(name));
    let drop = if taken { format!("DROP INDEX \"{name}\"; ") } else { String::new() };
    found.add(
        false,
        format!("{table} lacks the index {name}, or it is another"),
        format!("{drop}{sql}"),
    );
    Ok(())
}

async fn definitions(
    pool: &SqlitePool,
    table: &str,
    kind: &str,
) -> Result<Vec<String>, StoreError> {
    sqlx::query_scalar(
        "SELECT sql FROM sqlite_master WHERE tbl_name = ?1 AND type = ?2 AND sql IS NOT NULL",
    )
    .bind(table.to_owned())
    .bind(kind.to_owned())
    .fetch_all(pool)
    .await
    .map_err(StoreError::of("read the schema"))
}

/// Without blanks and parentheses.
fn bare(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && !matches!(c, '(' | ')')).collect()
}
