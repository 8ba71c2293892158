//! What can be wrong with a table of SQLite. Most of it needs the table anew:
//! SQLite alters no column in place. The SQL for that keeps the rows.

use outbox::Outgoing;
use outbox::schema::{Database, sql, validate_schema};
use sqlx::AssertSqlSafe;
use sqlx::sqlite::{SqliteConnection, SqlitePoolOptions};

use super::names::every_statement_works;
use super::validate::{anew, differences, empty, expect, fill, mend, mended, quoted};
use super::validate_columns::stops_claims;
use crate::bench::{Bench, SqlBench, Sqlite, Steps};

/// Makes a table anew with its definition changed, and its rows. Indexes that it
/// cannot have any more are left out.
pub async fn redefine(b: &Sqlite, table: &str, change: impl Fn(&str) -> String) {
    // One connection: the others learn late what it made and dropped.
    let connection = &mut *b.pool().acquire().await.unwrap();
    let made = |kind: &str| {
        format!(
            "SELECT sql FROM sqlite_master \
             WHERE tbl_name = '{table}' AND type = '{kind}' AND sql IS NOT NULL"
        )
    };
    let columns = format!("SELECT name FROM pragma_table_info('{table}')");
    let old = texts(connection, made("table")).await.remove(0);
    let indexes = texts(connection, made("index")).await;
    let before = texts(connection, columns.clone()).await;
    let new = change(&old);
    assert_ne!(new, old);
    let sql = format!("CREATE TABLE kept AS SELECT * FROM {table}; DROP TABLE {table}; {new}");
    run(connection, sql).await.unwrap();
    let after = texts(connection, columns).await;
    let both = before.iter().filter(|column| after.contains(column)).map(|column| quoted(column));
    let both = both.collect::<Vec<_>>().join(", ");
    let copy = format!("INSERT INTO {table} ({both}) SELECT {both} FROM kept; DROP TABLE kept");
    run(connection, copy).await.unwrap();
    for index in indexes {
        if let Err(error) = run(connection, index).await {
            assert!(error.to_string().contains("no such column"), "{error}");
        }
    }
}

async fn texts(connection: &mut SqliteConnection, sql: String) -> Vec<String> {
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(connection).await.unwrap()
}

async fn run(connection: &mut SqliteConnection, sql: String) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(drop)
}

/// The definition without the line of one column, or with another one.
pub fn with_line(made: &str, column: &str, line: Option<&str>) -> String {
    let mut lines: Vec<String> = Vec::new();
    for old in made.lines() {
        if !old.trim_start().starts_with(&format!("{column} ")) {
            lines.push(old.to_owned());
        } else if let Some(new) = line {
            lines.push(format!("    {new}{}", if old.ends_with(',') { "," } else { "" }));
        }
    }
    // A column that was added stands behind the others.
    let text = lines.join("\n").replace(",\n, ", ",\n");
    // The CHECK of a column that is not there, and a comma before the end.
    let text =
        if line.is_none() && column.starts_with("acquired") { without_check(&text) } else { text };
    text.replace(",\n) STRICT", "\n) STRICT")
}

pub fn without_check(made: &str) -> String {
    let kept =
        made.lines().filter(|line| !line.contains("lease_ck") && !line.trim().starts_with("--"));
    kept.collect::<Vec<_>>().join("\n").replace(",\n)", "\n)")
}

/// The table is as it was, and works.
async fn restored(b: &Sqlite, found: &[outbox::schema::Difference]) {
    let before = (b.rows().await, b.letters().await);
    mend(b, found).await;
    assert_eq!((b.rows().await, b.letters().await), before);
    empty(b).await;
    every_statement_works(b).await;
    anew(b).await;
}

async fn a_missing_column(b: Sqlite) {
    for (table, column, fatal) in [
        ("outbox", "headers", true),
        ("outbox", "attempts_count", true),
        ("outbox", "deliveries_count", true),
        ("outbox", "created_at", true),
        ("outbox", "next_attempt_at", true),
        ("outbox", "first_attempt_at", true),
        ("outbox", "acquired_at", true),
        ("outbox", "acquired_token", true),
        ("outbox", "timer_id", true),
        ("outbox_dlq", "headers", true),
        ("outbox_dlq", "failed_at", true),
        ("outbox_dlq", "last_exception", true),
        ("outbox_dlq", "resolved_at", true),
        ("outbox_dlq", "fingerprint", true),
        ("outbox_dlq", "replayed_id", true),
    ] {
        fill(&b).await;
        redefine(&b, table, |made| with_line(made, column, None)).await;
        let found = differences(&b, true).await;
        assert_eq!(found[0].what, format!("{table} has no column {column}"), "{found:#?}");
        assert_eq!(found[0].fatal, fatal);
        mend(&b, &found).await;
        assert_eq!((b.rows().await.len(), b.letters().await.len()), (3, 1));
        empty(&b).await;
        every_statement_works(&b).await;
        anew(&b).await;
    }
}

/// Nothing says what they hold, so the table has to be empty.
async fn a_missing_column_that_cannot_be_guessed(b: Sqlite) {
    for (table, column) in [
        ("outbox", "queue"),
        ("outbox", "payload"),
        ("outbox_dlq", "original_id"),
        ("outbox_dlq", "failure_reason"),
    ] {
        redefine(&b, table, |made| with_line(made, column, None)).await;
        let found = differences(&b, true).await;
        assert_eq!(found[0].what, format!("{table} has no column {column}"), "{found:#?}");
        mend(&b, &found).await;
        every_statement_works(&b).await;
        anew(&b).await;
    }
}

async fn a_column_of_another_type(b: Sqlite) {
    for (table, line) in [
        ("outbox", "queue ANY NOT NULL"),
        ("outbox", "payload ANY NOT NULL"),
        ("outbox", "headers ANY"),
        ("outbox", "created_at REAL NOT NULL DEFAULT 0"),
        ("outbox_dlq", "original_id TEXT NOT NULL"),
        ("outbox_dlq", "note ANY"),
    ] {
        let column = line.split(' ').next().unwrap();
        fill(&b).await;
        let before = (b.rows().await, b.letters().await);
        redefine(&b, table, |made| with_line(made, column, Some(line))).await;
        if column == "payload" {
            b.execute("UPDATE outbox SET payload = CAST(payload AS TEXT)").await;
        }
        let found = expect(&b, &[(&format!("{table} column {column} is "), true)]).await;
        mend(&b, &found).await;
        assert_eq!((b.rows().await, b.letters().await), before);
        empty(&b).await;
        every_statement_works(&b).await;
        anew(&b).await;
    }
}

async fn a_column_that_may_be_null(b: Sqlite) {
    for (table, line) in [
        ("outbox", "queue TEXT"),
        ("outbox", "attempts_count INTEGER DEFAULT 0"),
        ("outbox_dlq", "payload BLOB"),
        ("outbox_dlq", "status TEXT DEFAULT 'failed'"),
    ] {
        let column = line.split(' ').next().unwrap();
        fill(&b).await;
        redefine(&b, table, |made| match column {
            // Its CHECK stands on a line of its own.
            "status" => made.replacen("status TEXT NOT NULL", "status TEXT", 1),
            _ => with_line(made, column, Some(line)),
        })
        .await;
        let what = format!("{table} column {column} is nullable");
        let found = expect(&b, &[(&what, stops_claims(table, column))]).await;
        if column == "attempts_count" {
            b.execute("UPDATE outbox SET attempts_count = NULL WHERE attempts_count = 0").await;
            mend(&b, &found).await;
            assert_eq!(b.number("SELECT sum(attempts_count) FROM outbox").await, 1);
            assert_eq!(b.rows().await.len(), 3);
            anew(&b).await;
            continue;
        }
        restored(&b, &found).await;
    }
}

async fn a_column_that_may_not_be_null(b: Sqlite) {
    for (table, line) in [
        ("outbox", "timer_id TEXT NOT NULL"),
        ("outbox", "headers TEXT NOT NULL"),
        ("outbox_dlq", "note TEXT NOT NULL"),
    ] {
        let column = line.split(' ').next().unwrap();
        redefine(&b, table, |made| with_line(made, column, Some(line))).await;
        let found = expect(&b, &[(&format!("{table} column {column} is NOT NULL"), true)]).await;
        restored(&b, &found).await;
    }
}

async fn a_column_without_its_default(b: Sqlite) {
    for (table, line, fatal) in [
        ("outbox", "attempts_count INTEGER NOT NULL", true),
        ("outbox", "created_at INTEGER NOT NULL", false),
        ("outbox_dlq", "failed_at INTEGER NOT NULL", false),
    ] {
        let column = line.split(' ').next().unwrap();
        fill(&b).await;
        redefine(&b, table, |made| with_line(made, column, Some(line))).await;
        let what = format!("{table} column {column} has no default");
        let found = expect(&b, &[(&what, fatal)]).await;
        restored(&b, &found).await;
    }
}

async fn an_id_that_is_no_key(b: Sqlite) {
    for table in ["outbox", "outbox_dlq"] {
        for line in ["id INTEGER NOT NULL", "id INTEGER NOT NULL DEFAULT 0"] {
            fill(&b).await;
            redefine(&b, table, |made| with_line(made, "id", Some(line))).await;
            let found = expect(&b, &[(&format!("{table} column id "), true)]).await;
            restored(&b, &found).await;
        }
    }
}

async fn a_missing_lease_check(b: Sqlite) {
    let before = fill(&b).await;
    redefine(&b, "outbox", without_check).await;
    let half = "UPDATE outbox SET acquired_at = 1 WHERE acquired_token IS NULL";
    b.execute(half).await;
    let found = expect(&b, &[("lacks the CHECK", false)]).await;
    mend(&b, &found).await;
    assert_eq!((b.rows().await, b.letters().await), before);
    assert!(sqlx::raw_sql(half).execute(b.pool()).await.is_err());
}

/// Nobody else knows whether they are to go on.
async fn what_a_table_made_anew_leaves_behind_is_named(b: Sqlite) {
    const AGAIN: &str = "; make these again on ";
    redefine(&b, "outbox", without_check).await;
    let found = expect(&b, &[("lacks the CHECK", false)]).await;
    assert!(!found[0].mend.contains(AGAIN), "{found:#?}");
    b.execute("CREATE INDEX mine ON outbox (created_at)").await;
    b.execute("CREATE TRIGGER tr AFTER INSERT ON outbox BEGIN SELECT 1; END").await;
    let found = expect(&b, &[("lacks the CHECK", false)]).await;
    let (comment, _) = found[0].mend.split_once('\n').unwrap();
    let named = format!("{AGAIN}\"outbox\": trigger \"tr\", index \"mine\"");
    assert!(comment.ends_with(&named), "{comment}");
    mend(&b, &found).await;
}

async fn a_missing_status_check(b: Sqlite) {
    let before = fill(&b).await;
    const CHECK: &str = "CHECK (status IN ('failed', 'resolved', 'ignored'))";
    redefine(&b, "outbox_dlq", |made| {
        let (column, check) =
            made.split_once("\n        CONSTRAINT \"outbox_dlq_status_ck\" ").unwrap();
        format!("{column}{}", check.strip_prefix(CHECK).unwrap())
    })
    .await;
    let other = "UPDATE outbox_dlq SET status = 'closed'";
    b.execute(other).await;
    let found = expect(&b, &[("lacks the CHECK of what a status", false)]).await;
    mend(&b, &found).await;
    assert_eq!((b.rows().await, b.letters().await), before);
    assert!(sqlx::raw_sql(other).execute(b.pool()).await.is_err());
}

/// With all that is in them; they may be left out from now on.
async fn further_columns_survive(b: Sqlite) {
    fill(&b).await;
    redefine(&b, "outbox", |made| {
        let further = "\"of \"\"others\"\"\" TEXT NOT NULL DEFAULT 'x',\n    tenant INT NOT NULL,";
        let made = made.replacen("timer_id TEXT,", &format!("timer_id TEXT,\n    {further}"), 1);
        // Rows are copied without it; it is tightened below.
        made.replacen("tenant INT NOT NULL", "tenant INT NOT NULL DEFAULT 7", 1)
    })
    .await;
    redefine(&b, "outbox", |made| made.replacen(" DEFAULT 7", "", 1)).await;
    let found = expect(&b, &[("further column tenant", true)]).await;
    mend(&b, &found).await;
    assert_eq!(b.number("SELECT sum(tenant) FROM outbox").await, 21);
    let others = "SELECT count(*) FROM outbox WHERE \"of \"\"others\"\"\" = 'x'";
    assert_eq!(b.number(others).await, 3);
    b.put("q").await;
    assert_eq!(b.number(others).await, 4);
    empty(&b).await;
    every_statement_works(&b).await;
}

async fn what_another_connection_changed_is_seen(b: Sqlite) {
    let options = (*b.pool().connect_options()).clone();
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    let told = async || match validate_schema(&pool, b.names(), true).await {
        Ok(()) => String::new(),
        Err(error) => error.to_string(),
    };
    assert_eq!(told().await, "");
    b.execute("DROP INDEX outbox_due_idx").await;
    assert!(told().await.contains("(queue, next_attempt_at, id)"));
    b.execute("ALTER TABLE outbox_dlq DROP COLUMN note").await;
    assert!(told().await.contains("no column note"));
    b.execute("DROP TABLE outbox").await;
    assert!(told().await.contains("the table outbox does not exist"));
    b.execute("DROP TABLE outbox_dlq").await;
    b.execute(&sql(Database::Sqlite, b.names())).await;
    assert_eq!(told().await, "");
    pool.close().await;
}

/// A connection knows what it saw last.
async fn an_index_that_another_connection_made_serves_the_next_publish(b: Sqlite) {
    let options = (*b.pool().connect_options()).clone();
    for batch in [false, true] {
        b.execute("DROP INDEX outbox_timer_id_uq").await;
        let pool = SqlitePoolOptions::new().max_connections(1);
        let pool = pool.connect_with(options.clone()).await.unwrap();
        sqlx::query("SELECT count(*) FROM outbox").fetch_all(&pool).await.unwrap();
        b.execute(&sql(Database::Sqlite, b.names())).await;
        let mut tx = outbox::sqlite::begin(&pool).await.unwrap();
        let message = Outgoing::new("q", &1).timer_id("t");
        let published = if batch {
            b.publisher().publish_batch(&mut tx, vec![message]).await.unwrap().remove(0)
        } else {
            b.publisher().send(&mut tx, message).await.unwrap()
        };
        assert!(published.id().is_some());
        tx.rollback().await.unwrap();
        pool.close().await;
    }
}

/// As where a tool made the table anew. Statements that are to read no more than they count ask for
/// it by its name.
async fn an_index_of_open_letters_has_its_name(b: Sqlite) {
    let other = "DROP INDEX outbox_dlq_open_idx; \
        CREATE INDEX mine ON outbox_dlq (queue, failed_at, id) WHERE status = 'failed'";
    mended(&b, other, &[("no index named outbox_dlq_open_idx", false)]).await;
}

async fn a_schema_is_refused(b: Sqlite) {
    let names = b.names().clone().in_schema("shop").unwrap();
    let error = validate_schema(b.pool(), &names, true).await.unwrap_err();
    assert!(error.to_string().contains("SQLite has no schema \"shop\""), "{error}");
}

cases! {
    sqlite only, "the columns and their types are SQLite's":
    a_missing_column,
    a_missing_column_that_cannot_be_guessed,
    a_column_of_another_type,
    a_column_that_may_be_null,
    a_column_that_may_not_be_null,
    a_column_without_its_default,
    an_id_that_is_no_key,
    a_missing_lease_check,
    what_a_table_made_anew_leaves_behind_is_named,
    a_missing_status_check,
    further_columns_survive,
    what_another_connection_changed_is_seen,
    an_index_that_another_connection_made_serves_the_next_publish,
    an_index_of_open_letters_has_its_name,
    a_schema_is_refused,
}
