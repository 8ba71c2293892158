//! What can be wrong with a column of PostgreSQL, one by one, and that the SQL that
//! is told mends it.

use outbox::testing::store::Store;

use super::names::every_statement_works;
use super::validate::{differences, empty, expect, fill, mend, mended};
use crate::bench::{Bench, Postgres, SqlBench, Steps, death};

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

/// Columns without which a row fails every claim of its queue.
pub fn stops_claims(table: &str, column: &str) -> bool {
    let read = ["payload", "attempts_count", "deliveries_count", "created_at"];
    table == "outbox" && read.contains(&column)
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

/// Its column can be mended, and the ids would still run out.
async fn a_sequence_of_integers(b: Postgres) {
    let serial = |table: &str| {
        format!(
            "ALTER TABLE {table} ALTER COLUMN id DROP IDENTITY, ALTER COLUMN id TYPE integer; \
             CREATE SEQUENCE {table}_serial AS integer OWNED BY {table}.id; \
             ALTER TABLE {table} ALTER COLUMN id SET DEFAULT nextval('{table}_serial')"
        )
    };
    b.execute(&format!("{}; {}", serial("outbox"), serial("outbox_dlq"))).await;
    let found = differences(&b, false).await;
    let ends: Vec<_> = found.iter().filter(|one| one.what.contains("above 2147483647")).collect();
    assert!(ends.len() == 2 && ends.iter().all(|one| !one.fatal), "{found:#?}");
    mend(&b, &found).await;
    assert_eq!(differences(&b, false).await, []);
    b.execute("SELECT setval('outbox_serial', 2147483647)").await;
    b.put("q").await;
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
        let found = expect(&b, &[(&what, stops_claims(table, column))]).await;
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

async fn a_default_of_another_type(b: Postgres) {
    for (table, column) in [("outbox", "attempts_count"), ("outbox", "deliveries_count")] {
        let alter = format!("ALTER TABLE {table} ALTER COLUMN {column}");
        let breaking = format!("{alter} TYPE text; {alter} SET DEFAULT '0'");
        let what = format!("\"{table}\".{column} is text");
        mended(&b, &breaking, &[(&what, true)]).await;
        empty(&b).await;
    }
}

/// Its sequence starts behind the rows that are there.
async fn an_id_that_counts_no_more(b: Postgres) {
    let (rows, letters) = fill(&b).await;
    for table in ["outbox", "outbox_dlq"] {
        b.execute(&format!("ALTER TABLE {table} ALTER COLUMN id DROP IDENTITY")).await;
        let what = format!("\"{table}\".id has no default");
        let found = expect(&b, &[(&what, true)]).await;
        mend(&b, &found).await;
    }
    let next = b.put("other").await;
    assert!(next > rows.last().unwrap().id);
    let lease = b.take("other").await;
    b.store().bury(&[death(lease)]).await.unwrap();
    assert!(b.letters().await.last().unwrap().id > letters.last().unwrap().id);
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

cases! {
    postgres only, "the columns and their types are PostgreSQL's":
    a_missing_column,
    a_sequence_of_integers,
    a_column_of_another_type,
    texts_may_be_of_any_length,
    a_column_that_may_be_null,
    a_column_that_may_not_be_null,
    a_column_without_its_default,
    a_default_of_another_type,
    an_id_that_counts_no_more,
    an_id_that_is_no_key,
    a_further_column_that_must_be_set,
}
