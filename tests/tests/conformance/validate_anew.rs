//! Tables of SQLite that are made anew, because no column of theirs can be altered.

use outbox::schema::{Database, sql, validate_schema};
use outbox::{Error, TableNames};
use sqlx::AssertSqlSafe;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use super::validate::{differences, empty, expect, fill, mend};
use super::validate_sqlite::{redefine, with_line, without_check};
use crate::bench::{Bench, SqlBench, Sqlite, Steps};

/// Not even of rows that were gone before.
async fn a_table_made_anew_uses_no_id_again(b: Sqlite) {
    for table in ["outbox", "outbox_dlq"] {
        let (rows, letters) = fill(&b).await;
        let (row, letter) = (rows.last().unwrap().id, letters.last().unwrap().id);
        empty(&b).await;
        b.execute(&format!("ALTER TABLE {table} DROP COLUMN payload")).await;
        let found = differences(&b, true).await;
        assert!(found[0].mend.contains("BEGIN IMMEDIATE"), "{found:#?}");
        mend(&b, &found).await;
        let (rows, letters) = fill(&b).await;
        assert!(rows[0].id > row, "{} follows {row}", rows[0].id);
        assert!(letters[0].id > letter, "{} follows {letter}", letters[0].id);
        empty(&b).await;
    }
}

/// As a shell runs it that goes on after an error: with a row that cannot be copied, and
/// while somebody holds the lock that it begins with.
async fn what_a_mend_cannot_copy_is_still_there(b: Sqlite) {
    for (line, spoil) in [("payload BLOB", true), ("attempts_count INTEGER", false)] {
        let column = line.split(' ').next().unwrap();
        fill(&b).await;
        redefine(&b, "outbox", |made| with_line(made, column, Some(line))).await;
        if spoil {
            b.execute("UPDATE outbox SET payload = NULL WHERE id % 2 = 0").await;
        }
        let before = b.number("SELECT count(*) FROM outbox").await;
        let found = differences(&b, true).await;
        let (_, mend) = found[0].mend.split_once('\n').unwrap();
        let kept = found[0].mend.split('"').nth(1).unwrap();
        let connection = &mut *b.pool().acquire().await.unwrap();
        for statement in mend.split(';').filter(|one| spoil || !one.contains("BEGIN")) {
            let _ =
                sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut *connection).await;
        }
        let count = format!("SELECT count(*) FROM \"{kept}\"");
        assert_eq!(b.number(&count).await, before, "{line}");
        b.execute(&format!("DROP TABLE \"{kept}\"; DELETE FROM outbox_dlq")).await;
        if spoil {
            b.execute("DELETE FROM outbox").await;
        }
    }
}

async fn times_of_another_kind_stay_the_same_times(b: Sqlite) {
    for (kind, value) in [
        ("TEXT", "'2027-06-01 00:00:00'"),
        ("TEXT", "'2027-06-01T00:00:00Z'"),
        ("REAL", "1811808000.0"),
        ("DATETIME", "1811808000000"),
        ("REAL", "1811808000000000.0"),
    ] {
        b.put("q").await;
        let line = format!("next_attempt_at {kind} NOT NULL DEFAULT 0");
        redefine(&b, "outbox", |made| {
            let made = with_line(made, "next_attempt_at", Some(&line));
            made.replace(" STRICT", "")
        })
        .await;
        b.execute(&format!("UPDATE outbox SET next_attempt_at = {value}")).await;
        mend(&b, &differences(&b, true).await).await;
        assert_eq!(b.rows().await[0].due, 1_811_808_000_000_000, "{kind} {value}");
        empty(&b).await;
    }
}

/// As tools leave it that make a table anew for a column of their own.
async fn a_table_that_takes_any_value_or_uses_ids_again_is_told_of(b: Sqlite) {
    b.put("q").await;
    redefine(&b, "outbox", |made| made.replace(" STRICT", "")).await;
    b.execute("UPDATE outbox SET created_at = '2027-06-01 00:00:00'").await;
    let found = differences(&b, true).await;
    assert!(found[0].fatal && found[0].what.starts_with("outbox is not STRICT"), "{found:#?}");
    assert_eq!(found.len(), 1, "{found:#?}");
    mend(&b, &found).await;
    assert_eq!(b.number("SELECT created_at FROM outbox").await, 1_811_808_000_000_000);
    empty(&b).await;
    for table in ["outbox", "outbox_dlq"] {
        let again = |made: &str| made.replace(" AUTOINCREMENT", "");
        let (rows, letters) = fill(&b).await;
        redefine(&b, table, again).await;
        let found = differences(&b, true).await;
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(!found[0].fatal && found[0].what.starts_with(table), "{found:#?}");
        assert!(found[0].what.contains("lacks AUTOINCREMENT"), "{found:#?}");
        mend(&b, &found).await;
        empty(&b).await;
        let (more, others) = fill(&b).await;
        assert!(more[0].id > rows.last().unwrap().id, "{table}");
        assert!(others[0].id > letters.last().unwrap().id, "{table}");
        empty(&b).await;
    }
}

async fn a_time_that_cannot_be_read_is_not_taken_for_now(b: Sqlite) {
    b.put("q").await;
    redefine(&b, "outbox", |made| {
        let made = with_line(made, "next_attempt_at", Some("next_attempt_at TEXT NOT NULL"));
        made.replace(" STRICT", "")
    })
    .await;
    b.execute("UPDATE outbox SET next_attempt_at = 'on Tuesday'").await;
    let found = differences(&b, true).await;
    let connection = &mut *b.pool().acquire().await.unwrap();
    let whole = sqlx::raw_sql(AssertSqlSafe(found[0].mend.clone())).execute(&mut *connection);
    assert!(whole.await.unwrap_err().to_string().contains("NOT NULL"));
    sqlx::raw_sql("ROLLBACK").execute(connection).await.unwrap();
    assert_eq!(b.number("SELECT count(*) FROM outbox").await, 1);
    b.execute("DELETE FROM outbox").await;
}

/// Its indexes are named after it, and not after the outbox.
async fn dead_letters_of_another_name_keep_their_indexes_and_others_theirs(b: Sqlite) {
    let names = b.names().clone().with_dlq("dead").unwrap();
    b.execute(&sql(Database::Sqlite, &names)).await;
    redefine(&b, "dead", |made| with_line(made, "note", Some("note ANY"))).await;
    mend_as(&b, &names).await;
    let indexes = "SELECT count(*) FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL
        AND tbl_name = ";
    assert_eq!(b.number(&format!("{indexes} 'dead'")).await, 4);
    assert_eq!(b.number(&format!("{indexes} 'outbox_dlq'")).await, 4);
}

async fn a_name_of_two_lines_commands_nothing(b: Sqlite) {
    let names = TableNames::new("two\nDROP TABLE outbox;--").unwrap();
    b.execute(&sql(Database::Sqlite, &names)).await;
    b.execute("ALTER TABLE \"two\nDROP TABLE outbox;--\" DROP COLUMN headers").await;
    mend_as(&b, &names).await;
    assert_eq!(b.number("SELECT count(*) FROM outbox").await, 0);
}

async fn mend_as(b: &Sqlite, names: &TableNames) {
    let found = validate_schema(b.pool(), names, true).await.unwrap_err();
    let Error::Schema(found) = found else { panic!("{found}") };
    b.execute(&found.differences[0].mend).await;
    validate_schema(b.pool(), names, true).await.unwrap();
}

/// One SQL mends it all, and the text says so once.
async fn many_differences_are_mended_together(b: Sqlite) {
    fill(&b).await;
    redefine(&b, "outbox", |made| with_line(&without_check(made), "headers", None)).await;
    b.execute("DROP INDEX outbox_due_idx").await;
    let expected = [
        ("no column headers", true),
        ("(queue, next_attempt_at, id)", false),
        ("lacks the CHECK", false),
    ];
    let found = expect(&b, &expected).await;
    assert!(found.iter().all(|one| one.mend == found[0].mend));
    let text = b.store_mismatch().await;
    assert_eq!(text.matches("BEGIN IMMEDIATE").count(), 1, "{text}");
    assert_eq!(text.matches("the same SQL mends it").count(), 2, "{text}");
    mend(&b, &found).await;
    assert_eq!(b.rows().await.len(), 3);
}

trait Mismatch {
    async fn store_mismatch(&self) -> String;
}

impl Mismatch for Sqlite {
    async fn store_mismatch(&self) -> String {
        use outbox::testing::store::Store as _;
        self.store().validate(true).await.unwrap().to_string()
    }
}

async fn a_file_with_another_encoding_is_refused(b: Sqlite) {
    let file = std::env::temp_dir().join(outbox_tests::backend::unique("utf16"));
    let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true);
    let pool = SqlitePool::connect_with(options.pragma("encoding", "'UTF-16'")).await.unwrap();
    sqlx::raw_sql("CREATE TABLE orders (id INTEGER)").execute(&pool).await.unwrap();
    let names = b.names().clone();
    let error = validate_schema(&pool, &names, false).await.unwrap_err();
    assert!(error.to_string().contains("in UTF-16le, but they have to be in UTF-8"), "{error}");
    pool.close().await;
    std::fs::remove_file(file).unwrap();
}

cases! {
    sqlite only, "SQLite alters no column in place":
    a_table_made_anew_uses_no_id_again,
    a_table_that_takes_any_value_or_uses_ids_again_is_told_of,
    what_a_mend_cannot_copy_is_still_there,
    times_of_another_kind_stay_the_same_times,
    a_time_that_cannot_be_read_is_not_taken_for_now,
    dead_letters_of_another_name_keep_their_indexes_and_others_theirs,
    a_name_of_two_lines_commands_nothing,
    many_differences_are_mended_together,
    a_file_with_another_encoding_is_refused,
}
