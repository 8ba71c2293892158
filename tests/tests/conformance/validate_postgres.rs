//! What can be wrong with a table of PostgreSQL, column by column, and that the
//! SQL that is told mends it.

use outbox::TableNames;
use outbox::schema::migrate_tables;
use outbox::testing::store::Store;

use super::migrate::PYTHON;
use super::names::every_statement_works;
use super::validate::{differences, empty, expect, fill, mend, mended, quoted};
use crate::bench::{Bench, Postgres, SqlBench};

const OUTBOX: [&str; 13] = [
    "id",
    "queue",
    "payload",
    "headers",
    "attempts_count",
    "deliveries_count",
    "created_at",
    "next_attempt_at",
    "first_attempt_at",
    "last_attempt_at",
    "acquired_at",
    "acquired_token",
    "timer_id",
];

const DLQ: [&str; 16] = [
    "id",
    "original_id",
    "queue",
    "payload",
    "headers",
    "deliveries_count",
    "created_at",
    "failed_at",
    "failure_reason",
    "last_exception",
    "timer_id",
    "status",
    "resolved_at",
    "note",
    "error_kind",
    "fingerprint",
];

/// Every column, with its table.
fn columns() -> impl Iterator<Item = (&'static str, &'static str)> {
    let outbox = OUTBOX.map(|column| ("outbox", column));
    outbox.into_iter().chain(DLQ.map(|column| ("outbox_dlq", column)))
}

/// Columns that a table with rows cannot be given: nothing says what they hold.
fn unknowable(table: &str, column: &str) -> bool {
    let ours = ["id", "queue", "payload"];
    let letters = ["original_id", "deliveries_count", "created_at", "failure_reason"];
    ours.contains(&column) || table == "outbox_dlq" && letters.contains(&column)
}

async fn a_missing_column(b: Postgres) {
    for (table, column) in columns() {
        if !unknowable(table, column) {
            fill(&b).await;
        }
        let before = (b.rows().await.len(), b.letters().await.len());
        b.execute(&format!("ALTER TABLE {table} DROP COLUMN {column}")).await;
        let found = differences(&b, false).await;
        assert!(found[0].what.ends_with(&format!("has no column {column}")), "{found:#?}");
        assert!(found[0].fatal);
        mend(&b, &found).await;
        assert_eq!((b.rows().await.len(), b.letters().await.len()), before);
        empty(&b).await;
        every_statement_works(&b).await;
        empty(&b).await;
    }
}

async fn a_column_of_another_type(b: Postgres) {
    for (table, column, kind, using) in [
        ("outbox", "id", "integer", ""),
        ("outbox", "queue", "varchar(100)", ""),
        ("outbox", "payload", "text", "USING convert_from(payload, 'UTF8')"),
        ("outbox", "headers", "text", ""),
        ("outbox", "headers", "json", ""),
        ("outbox", "attempts_count", "integer", ""),
        ("outbox", "attempts_count", "text", ""),
        ("outbox", "deliveries_count", "numeric", ""),
        ("outbox", "created_at", "timestamp", ""),
        ("outbox", "next_attempt_at", "timestamp", ""),
        ("outbox", "first_attempt_at", "text", ""),
        ("outbox", "acquired_token", "text", ""),
        ("outbox", "timer_id", "varchar(99)", ""),
        ("outbox_dlq", "id", "integer", ""),
        ("outbox_dlq", "original_id", "integer", ""),
        ("outbox_dlq", "payload", "text", "USING convert_from(payload, 'UTF8')"),
        ("outbox_dlq", "failed_at", "text", ""),
        ("outbox_dlq", "failure_reason", "varchar(32)", ""),
    ] {
        let breaking = format!(
            "ALTER TABLE {table} ALTER COLUMN {column} TYPE {kind} {using}; SET timezone = UTC"
        );
        let what = format!("\"{table}\".{column} is ");
        mended(&b, &breaking, &[(&what, true)]).await;
        empty(&b).await;
    }
}

/// What services in other languages make of a name or a text.
async fn texts_may_be_of_any_length(b: Postgres) {
    b.execute(
        "ALTER TABLE outbox ALTER COLUMN queue TYPE text, ALTER COLUMN timer_id TYPE varchar; \
         ALTER TABLE outbox_dlq ALTER COLUMN last_exception TYPE varchar, \
            ALTER COLUMN status TYPE text, ALTER COLUMN failure_reason TYPE text",
    )
    .await;
    expect(&b, &[]).await;
    every_statement_works(&b).await;
}

async fn a_column_that_may_be_null(b: Postgres) {
    for (table, column) in columns() {
        let may = |column: &str| {
            let may = ["headers", "last_exception", "timer_id", "resolved_at", "note"];
            may.contains(&column) || ["error_kind", "fingerprint", "id"].contains(&column)
        };
        let times = ["first_attempt_at", "last_attempt_at", "acquired_at", "acquired_token"];
        if may(column) || times.contains(&column) {
            continue;
        }
        fill(&b).await;
        b.execute(&format!("ALTER TABLE {table} ALTER COLUMN {column} DROP NOT NULL")).await;
        if !unknowable(table, column) {
            b.execute(&format!("UPDATE {table} SET {column} = NULL")).await;
        }
        let what = format!("\"{table}\".{column} is nullable");
        let found = expect(&b, &[(&what, false)]).await;
        mend(&b, &found).await;
        empty(&b).await;
        every_statement_works(&b).await;
        empty(&b).await;
    }
}

async fn a_column_that_may_not_be_null(b: Postgres) {
    for (table, column) in [
        ("outbox", "headers"),
        ("outbox", "first_attempt_at"),
        ("outbox", "last_attempt_at"),
        ("outbox", "acquired_at"),
        ("outbox", "acquired_token"),
        ("outbox", "timer_id"),
        ("outbox_dlq", "headers"),
        ("outbox_dlq", "last_exception"),
        ("outbox_dlq", "resolved_at"),
    ] {
        b.execute(&format!("ALTER TABLE {table} ALTER COLUMN {column} SET NOT NULL")).await;
        let what = format!("\"{table}\".{column} is NOT NULL");
        let found = expect(&b, &[(&what, true)]).await;
        mend(&b, &found).await;
        every_statement_works(&b).await;
        empty(&b).await;
    }
}

/// Writers in other languages leave the times out, ours do not.
async fn a_column_without_its_default(b: Postgres) {
    for (table, column, fatal) in [
        ("outbox", "attempts_count", true),
        ("outbox", "deliveries_count", true),
        ("outbox", "created_at", false),
        ("outbox", "next_attempt_at", false),
        ("outbox_dlq", "status", true),
        ("outbox_dlq", "failed_at", false),
    ] {
        let breaking = format!("ALTER TABLE {table} ALTER COLUMN {column} DROP DEFAULT");
        let what = format!("\"{table}\".{column} has no default");
        mended(&b, &breaking, &[(&what, fatal)]).await;
        empty(&b).await;
    }
    b.execute("INSERT INTO outbox (queue, payload) VALUES ('q', 'x')").await;
    assert_eq!(b.rows().await.len(), 1);
}

/// Its sequence starts behind the rows that are there.
async fn an_id_that_counts_no_more(b: Postgres) {
    for table in ["outbox", "outbox_dlq"] {
        let breaking = format!("ALTER TABLE {table} ALTER COLUMN id DROP IDENTITY");
        let what = format!("\"{table}\".id has no default");
        mended(&b, &breaking, &[(&what, true)]).await;
        empty(&b).await;
    }
}

async fn an_id_that_is_no_key(b: Postgres) {
    for table in ["outbox", "outbox_dlq"] {
        let breaking = format!("ALTER TABLE {table} DROP CONSTRAINT {table}_pkey");
        mended(&b, &breaking, &[("no valid unique index on (id)", false)]).await;
        empty(&b).await;
    }
}

async fn a_further_column_that_must_be_set(b: Postgres) {
    for table in ["outbox", "outbox_dlq"] {
        let breaking = format!("ALTER TABLE {table} ADD COLUMN \"a \"\"b\"\"\" text NOT NULL");
        b.execute(&breaking).await;
        let found = expect(&b, &[("further column a \"b\"", true)]).await;
        mend(&b, &found).await;
        every_statement_works(&b).await;
        empty(&b).await;
    }
}

/// What CREATE INDEX CONCURRENTLY leaves behind when it fails.
async fn an_index_that_is_not_valid(b: Postgres) {
    let breaking = "UPDATE pg_index SET indisvalid = false \
        WHERE indexrelid = 'outbox_due_idx'::regclass";
    mended(&b, breaking, &[("(queue, next_attempt_at, id)", false)]).await;
}

async fn a_missing_lease_check(b: Postgres) {
    let before = fill(&b).await;
    let half = "UPDATE outbox SET acquired_at = now() WHERE acquired_token IS NULL";
    assert!(sqlx::raw_sql(half).execute(b.pool()).await.is_err());
    b.execute("ALTER TABLE outbox DROP CONSTRAINT outbox_lease_ck").await;
    b.execute(half).await;
    let found = expect(&b, &[("lacks the CHECK", false)]).await;
    mend(&b, &found).await;
    assert_eq!((b.rows().await, b.letters().await), before);
    assert!(sqlx::raw_sql(half).execute(b.pool()).await.is_err());
}

async fn another_lease_check(b: Postgres) {
    for check in [
        "(acquired_at > '2020-01-01')",
        "((acquired_token IS NULL) = (acquired_at IS NULL)) NOT VALID",
    ] {
        let breaking = format!(
            "ALTER TABLE outbox DROP CONSTRAINT outbox_lease_ck, \
             ADD CONSTRAINT outbox_lease_ck CHECK {check}"
        );
        mended(&b, &breaking, &[("lacks the CHECK", false)]).await;
        empty(&b).await;
    }
}

async fn a_check_may_have_another_name(b: Postgres) {
    b.execute("ALTER TABLE outbox RENAME CONSTRAINT outbox_lease_ck TO mine").await;
    expect(&b, &[]).await;
}

async fn autovacuum_settings_are_looked_at_on_request(b: Postgres) {
    let settings = [
        "autovacuum_vacuum_scale_factor",
        "autovacuum_vacuum_threshold",
        "autovacuum_vacuum_insert_scale_factor",
        "autovacuum_vacuum_insert_threshold",
    ];
    b.execute(&format!("ALTER TABLE outbox RESET ({})", settings.join(", "))).await;
    assert_eq!(differences(&b, false).await, []);
    let expected = settings.map(|setting| (setting, false));
    // The first is part of the third's name, so the texts end with them.
    let found = differences(&b, true).await;
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (one, (setting, fatal)) in found.iter().zip(expected) {
        assert!(one.what.ends_with(setting) && one.fatal == fatal, "{one:?}");
    }
    mend(&b, &found).await;
}

async fn a_share_of_the_table_is_no_threshold(b: Postgres) {
    let breaking = "ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0.2)";
    mended(&b, breaking, &[("autovacuum_vacuum_scale_factor", false)]).await;
    b.execute("ALTER TABLE outbox SET (autovacuum_vacuum_scale_factor = 0.0)").await;
    b.execute("ALTER TABLE outbox SET (autovacuum_vacuum_threshold = 5000)").await;
    expect(&b, &[]).await;
}

async fn autovacuum_may_not_be_off(b: Postgres) {
    for off in ["false", "off", "no", "0"] {
        b.execute(&format!("ALTER TABLE outbox SET (autovacuum_enabled = {off})")).await;
        assert_eq!(differences(&b, false).await, []);
        let found = expect(&b, &[("autovacuum is off", false)]).await;
        mend(&b, &found).await;
    }
    b.execute("ALTER TABLE outbox SET (autovacuum_enabled = on)").await;
    expect(&b, &[]).await;
}

async fn tables_in_a_schema_are_mended(b: Postgres) {
    let schema = format!("{} 'odd' \"", b.schema());
    b.execute(&format!("CREATE SCHEMA {}", quoted(&schema))).await;
    let names = TableNames::new("box").unwrap().in_schema(&*schema).unwrap();
    let other = b.on_search_path("\"\"", names.with_dlq("dead").unwrap());
    migrate_tables(other.pool(), other.names()).await.unwrap();
    let breaking = format!(
        "SET search_path = {}; DROP INDEX box_timer_id_uq; DROP INDEX box_due_idx; \
         CREATE INDEX box_due_idx ON box (id); ALTER TABLE box DROP CONSTRAINT box_lease_ck; \
         ALTER TABLE box ALTER COLUMN id DROP IDENTITY; ALTER TABLE dead DROP COLUMN status; \
         SET search_path = ''",
        quoted(&schema)
    );
    let expected = [
        ("(queue, timer_id)", true),
        ("(queue, next_attempt_at, id)", false),
        ("lacks the CHECK", false),
        ("id has no default", true),
        ("no column status", true),
    ];
    mended(&other, &breaking, &expected).await;
    other.store().close().await;
    other.pool().close().await;
    b.execute(&format!("DROP SCHEMA {} CASCADE", quoted(&schema))).await;
}

/// Without a migration, by what is told alone; their own indexes stay theirs.
async fn tables_that_python_made_are_mended(b: Postgres) {
    b.execute(PYTHON).await;
    let other = b.with_names(TableNames::new("py").unwrap().with_dlq("py_dlq").unwrap());
    let expected = [
        ("(queue, next_attempt_at, id)", false),
        ("no column status", true),
        ("no column resolved_at", true),
        ("no column note", true),
        ("no column error_kind", true),
        ("no column fingerprint", true),
        ("autovacuum_vacuum_scale_factor", false),
        ("autovacuum_vacuum_threshold", false),
        ("autovacuum_vacuum_insert_scale_factor", false),
        ("autovacuum_vacuum_insert_threshold", false),
    ];
    mended_python(&other, &expected).await;
    b.execute("DROP INDEX py_pending_idx; DROP INDEX py_leased_idx").await;
    other.store().close().await;
}

async fn mended_python(other: &Postgres, expected: &[(&str, bool)]) {
    let found = expect(other, expected).await;
    mend(other, &found).await;
    assert_eq!((other.rows().await.len(), other.letters().await.len()), (1, 1));
    empty(other).await;
    every_statement_works(other).await;
}

cases! {
    postgres only, "the columns and their types are PostgreSQL's":
    a_missing_column,
    a_column_of_another_type,
    texts_may_be_of_any_length,
    a_column_that_may_be_null,
    a_column_that_may_not_be_null,
    a_column_without_its_default,
    an_id_that_counts_no_more,
    an_id_that_is_no_key,
    a_further_column_that_must_be_set,
    an_index_that_is_not_valid,
    a_missing_lease_check,
    another_lease_check,
    a_check_may_have_another_name,
    autovacuum_settings_are_looked_at_on_request,
    a_share_of_the_table_is_no_threshold,
    autovacuum_may_not_be_off,
    tables_in_a_schema_are_mended,
    tables_that_python_made_are_mended,
}
