//! Migration and validation of the tables.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Row as _, SqlSafeStr};

use crate::error::StoreError;
use crate::schema::{Column, DLQ, OUTBOX, SchemaMismatch, sealed};
use crate::store::names::TableNames;

pub(crate) const MIGRATION: &str = include_str!("../../../migrations/postgres/0001_outbox.sql");
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
    // Applied before, for another dead-letter table. Its statements can be repeated.
    let dlq = names.qualified(&names.dlq_or_default());
    let made: bool = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
        .bind(dlq)
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
    pool: &PgPool,
    names: &TableNames,
    autovacuum: bool,
) -> Result<SchemaMismatch, StoreError> {
    let mut found = SchemaMismatch::default();
    let table = names.qualified(names.table());
    if columns(pool, &table, &OUTBOX, &mut found).await? {
        let sql = |text: &str| names.sql(text).to_string();
        index(
            pool,
            &table,
            &mut found,
            &Index {
                columns: &["queue", "next_attempt_at", "id"],
                unique: false,
                predicate: None,
                mend: sql(
                    "CREATE INDEX \"outbox_due_idx\" ON \"outbox\" (queue, next_attempt_at, id)",
                ),
            },
        )
        .await?;
        index(pool, &table, &mut found, &Index {
            columns: &["queue", "timer_id"],
            unique: true,
            predicate: Some("timer_idISNOTNULL"),
            mend: sql("CREATE UNIQUE INDEX \"outbox_timer_id_uq\" ON \"outbox\" (queue, timer_id) WHERE timer_id IS NOT NULL"),
        })
        .await?;
        lease_check(pool, &table, names, &mut found).await?;
        if autovacuum {
            vacuum_settings(pool, &table, &mut found).await?;
        }
    }
    if let Some(dlq) = names.dlq() {
        let dlq = names.qualified(dlq);
        if columns(pool, &dlq, &DLQ, &mut found).await? {
            index(pool, &dlq, &mut found, &Index {
                columns: &["queue", "failed_at"],
                unique: false,
                predicate: None,
                mend: names.sql("CREATE INDEX \"outbox_dlq_queue_failed_idx\" ON \"outbox_dlq\" (queue, failed_at)").to_string(),
            })
            .await?;
        }
    }
    Ok(found)
}

/// False when the table does not exist.
async fn columns(
    pool: &PgPool,
    table: &str,
    expected: &[Column],
    found: &mut SchemaMismatch,
) -> Result<bool, StoreError> {
    let rows = sqlx::query(
        "SELECT attname::text, format_type(atttypid, atttypmod), attnotnull, \
            atthasdef OR attidentity <> '' \
         FROM pg_attribute \
         WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped",
    )
    .bind(table)
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
    for column in expected {
        let Column { name, postgres: types, not_null, default, .. } = column;
        let Some((kind, is_not_null, has_default)) = actual.remove(*name) else {
            let default =
                if default.is_empty() { String::new() } else { format!(" DEFAULT {default}") };
            let null = if *not_null { " NOT NULL" } else { "" };
            let mend = format!("ALTER TABLE {table} ADD COLUMN {name} {}{null}{default}", types[0]);
            found.add(true, format!("{table} has no column {name}"), mend);
            continue;
        };
        if !types.contains(&kind.as_str()) {
            let mend = format!("ALTER TABLE {table} ALTER COLUMN {name} TYPE {}", types[0]);
            found.add(true, format!("{table}.{name} is {kind} instead of {}", types[0]), mend);
        }
        if is_not_null != *not_null {
            let (is, verb) = if *not_null { ("nullable", "SET") } else { ("NOT NULL", "DROP") };
            let mend = format!("ALTER TABLE {table} ALTER COLUMN {name} {verb} NOT NULL");
            found.add(!not_null, format!("{table}.{name} is {is}"), mend);
        }
        if !default.is_empty() && !has_default {
            let what = if *default == "identity" {
                "ADD GENERATED BY DEFAULT AS IDENTITY".into()
            } else {
                format!("SET DEFAULT {default}")
            };
            let mend = format!("ALTER TABLE {table} ALTER COLUMN {name} {what}");
            found.add(true, format!("{table}.{name} has no default"), mend);
        }
    }
    for (name, (_, not_null, has_default)) in actual {
        if not_null && !has_default {
            let mend = format!("ALTER TABLE {table} ALTER COLUMN \"{name}\" DROP NOT NULL");
            let what = format!(
                "{table} has a further column {name} without a default, which makes inserts fail"
            );
            found.add(true, what, mend);
        }
    }
    Ok(true)
}

struct Index {
    columns: &'static [&'static str],
    unique: bool,
    /// Without blanks and parentheses.
    predicate: Option<&'static str>,
    mend: String,
}

async fn index(
    pool: &PgPool,
    table: &str,
    found: &mut SchemaMismatch,
    expected: &Index,
) -> Result<(), StoreError> {
    let rows = sqlx::query(
        "SELECT x.indisunique, pg_get_expr(x.indpred, x.indrelid), x.indexrelid::regclass::text, \
            ARRAY(SELECT pg_get_indexdef(x.indexrelid, n, true) \
                  FROM generate_series(1, x.indnkeyatts::int) AS n) \
         FROM pg_index AS x \
         WHERE x.indrelid = to_regclass($1) AND x.indisvalid",
    )
    .bind(table)
    .fetch_all(pool)
    .await
    .map_err(StoreError::of("read the indexes"))?;
    let mut same_columns = None;
    for row in &rows {
        let columns: Vec<String> = row.get(3);
        if columns != expected.columns {
            continue;
        }
        let predicate: Option<String> = row.get(1);
        let right = row.get::<bool, _>(0) == expected.unique
            && predicate.as_deref().map(bare).as_deref() == expected.predicate;
        if right {
            return Ok(());
        }
        same_columns = Some(row.get::<String, _>(2));
    }
    let columns = expected.columns.join(", ");
    let kind = if expected.unique { "unique index" } else { "index" };
    match same_columns {
        None => found.add(false, format!("{table} has no {kind} on ({columns})"), &*expected.mend),
        Some(name) => {
            let what = format!(
                "the index {name} on ({columns}) of {table} has another predicate or uniqueness"
            );
            found.add(false, what, format!("DROP INDEX {name}; {}", expected.mend));
        }
    }
    Ok(())
}

async fn lease_check(
    pool: &PgPool,
    table: &str,
    names: &TableNames,
    found: &mut SchemaMismatch,
) -> Result<(), StoreError> {
    let definitions: Vec<String> = sqlx::query_scalar(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint \
         WHERE conrelid = to_regclass($1) AND contype = 'c'",
    )
    .bind(table)
    .fetch_all(pool)
    .await
    .map_err(StoreError::of("read the constraints"))?;
    let lease = "CHECKacquired_tokenISNULL=acquired_atISNULL";
    if !definitions.iter().any(|text| bare(text) == lease) {
        let mend = names.sql("ALTER TABLE \"outbox\" ADD CONSTRAINT \"outbox_lease_ck\" CHECK ((acquired_token IS NULL) = (acquired_at IS NULL))");
        found.add(false, format!("{table} lacks the CHECK that a lease is set whole"), &*mend);
    }
    Ok(())
}

async fn vacuum_settings(
    pool: &PgPool,
    table: &str,
    found: &mut SchemaMismatch,
) -> Result<(), StoreError> {
    let options: Option<Vec<String>> =
        sqlx::query_scalar("SELECT reloptions FROM pg_class WHERE oid = to_regclass($1)")
            .bind(table)
            .fetch_one(pool)
            .await
            .map_err(StoreError::of("read the storage settings"))?;
    let options = options.unwrap_or_default();
    let get = |name: &str| options.iter().find_map(|set| set.strip_prefix(name)?.strip_prefix('='));
    for (name, value, exact) in [
        ("autovacuum_vacuum_scale_factor", "0", true),
        ("autovacuum_vacuum_threshold", "1000", false),
        ("autovacuum_vacuum_insert_scale_factor", "0", true),
        ("autovacuum_vacuum_insert_threshold", "1000", false),
    ] {
        let right = get(name).is_some_and(|set| !exact || set.parse() == Ok(0.0));
        if !right {
            let mend = format!("ALTER TABLE {table} SET ({name} = {value})");
            found.add(false, format!("{table} does not set {name}"), mend);
        }
    }
    if get("autovacuum_enabled").is_some_and(|set| set == "false" || set == "off") {
        let mend = format!("ALTER TABLE {table} RESET (autovacuum_enabled)");
        found.add(false, format!("autovacuum is off for {table}"), mend);
    }
    Ok(())
}

/// Without blanks and parentheses, which the server places as it likes.
fn bare(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace() && !matches!(c, '(' | ')')).collect()
}
