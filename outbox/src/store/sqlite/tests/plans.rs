//! Tests that the questions of operators read by index, and that writes go by ids, whatever ANALYZE
//! saw.

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Row as _};
use uuid::Uuid;

use crate::dlq::narrowed;
use crate::store::Lease;
use crate::store::names::TableNames;
use crate::store::sqlite::batch::{BURIED, Batches, GONE, RANGE, ROW, WRITES};

const QUESTIONS: [(&str, &str); 11] = [
    ("queues", include_str!("../sql/queues.sql")),
    ("counts", include_str!("../sql/counts.sql")),
    ("peek", include_str!("../sql/peek.sql")),
    ("timer_row", include_str!("../sql/timer_row.sql")),
    ("why_row", include_str!("../sql/why_row.sql")),
    ("why_before", include_str!("../sql/why_before.sql")),
    ("why_readers", include_str!("../sql/why_readers.sql")),
    ("why_letters", include_str!("../sql/why_letters.sql")),
    ("why_more_letters", include_str!("../sql/why_more_letters.sql")),
    ("doctor/rows", include_str!("../sql/doctor/rows.sql")),
    ("doctor/letters", include_str!("../sql/doctor/letters.sql")),
];

/// Statements over the letters of a filter.
const OVER_LETTERS: [(&str, &str); 5] = [
    ("letters_find", include_str!("../sql/letters_find.sql")),
    ("letters_page", include_str!("../sql/letters_page.sql")),
    ("letters_mark", include_str!("../sql/letters_mark.sql")),
    ("letters_purge", include_str!("../sql/letters_purge.sql")),
    ("letters_count", include_str!("../sql/letters_count.sql")),
];

/// Words of filters, and the index that reads the fewest letters for each.
const FILTERS: [(&str, &str); 14] = [
    ("failed", "status"),
    ("failed until", "status"),
    ("resolved", "status"),
    ("resolved until", "status"),
    ("queue", "queue_failed"),
    ("resolved queue", "queue_failed"),
    ("resolved queue fingerprint until", "queue_failed"),
    ("failed queue", "open"),
    ("failed queue until", "open"),
    ("failed queue reason since until", "open"),
    ("failed fingerprint", "group"),
    ("failed fingerprint until", "group"),
    ("failed queue fingerprint", "group"),
    ("failed queue fingerprint reason since until", "group"),
];

async fn exec(pool: &SqlitePool, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pool).await.unwrap();
}

/// Steps of plans that read a table whole, or sort rows of one.
async fn faults(pool: &SqlitePool, when: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, text) in QUESTIONS {
        let explain = format!("EXPLAIN QUERY PLAN {text}");
        let steps = sqlx::query(AssertSqlSafe(explain)).fetch_all(pool).await.unwrap();
        for step in steps.iter().map(|row| row.get::<String, _>(3)) {
            let scans = ["SCAN outbox", "SCAN o", "SCAN d"];
            let scans = scans.iter().any(|scan| {
                step.strip_prefix(scan)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '_']))
            });
            let by_design = match name {
                // It reads the letters from the end, and no further than it is asked for.
                "why_letters" | "why_more_letters" => step.starts_with("SCAN outbox_dlq"),
                // It reads the first row of each queue; and the pauses, which are few.
                "queues" => step.contains("INDEX") || step == "SCAN outbox_paused",
                // The caller finds that out, and asks for more at once.
                "doctor/rows" | "doctor/letters" => when == "known to have a row",
                _ => false,
            };
            let whole = scans && !by_design;
            // By their status, all open letters of all queues would be read.
            let by_status = step.contains("outbox_dlq_status_idx");
            if whole
                || by_status
                || step.contains("B-TREE FOR ORDER BY")
                || step.contains("AUTOMATIC")
            {
                faults.push(format!("{name}: {step}; {when}"));
            }
        }
    }
    faults
}

/// The steps that read letters, in the plan of a statement over the letters of a filter; and its
/// sorts.
async fn over(pool: &SqlitePool, text: &str, words: &str) -> Vec<String> {
    let wants = |word: &str| words.split(' ').any(|wanted| wanted == word);
    let conditions = include_str!("../sql/letters_where.sql");
    let text = narrowed(&TableNames::default(), text, conditions, wants);
    let explain = format!("EXPLAIN QUERY PLAN {text}");
    let steps = sqlx::query(AssertSqlSafe(explain)).fetch_all(pool).await.unwrap();
    let steps = steps.iter().map(|row| row.get::<String, _>(3));
    let of_letters = |step: &String| step.contains(" l ") || step.contains("B-TREE FOR ORDER BY");
    steps.filter(of_letters).collect()
}

/// Statements over letters that do not go by the index of their filter.
async fn astray(pool: &SqlitePool, when: &str) -> Vec<String> {
    let mut astray = Vec::new();
    for (name, text) in OVER_LETTERS {
        for (words, index) in FILTERS {
            for words in [words.to_owned(), format!("{words} after")] {
                let steps = over(pool, text, &words).await;
                let by = format!("INDEX outbox_dlq_{index}_idx (");
                // Of two indexes that are as good for a letter, SQLite takes the shorter one.
                let or = if when == "known to have a row" && index == "open" {
                    "INDEX outbox_dlq_queue_failed_idx ("
                } else {
                    &by
                };
                if !matches!(&steps[..], [one] if one.contains(&by) || one.contains(or)) {
                    astray.push(format!("{name} of {words}: {steps:?}; {when}"));
                }
            }
        }
    }
    // If letters are named, no others are read, except where ANALYZE says that there are few.
    if when == "never analysed" {
        for (name, text) in OVER_LETTERS {
            let steps = over(pool, text, "failed ids").await;
            if !steps[0].contains("INTEGER PRIMARY KEY") {
                astray.push(format!("{name} of ids: {steps:?}; {when}"));
            }
        }
    }
    for (words, index) in [
        ("failed", "group_idx (fingerprint>?)"),
        ("failed queue", "open_idx (queue=?)"),
        ("failed queue since", "open_idx (queue=? AND failed_at>?)"),
        ("failed fingerprint", "group_idx (fingerprint=?)"),
        ("failed queue fingerprint", "group_idx (fingerprint=?)"),
    ] {
        let steps = over(pool, include_str!("../sql/letters_groups.sql"), words).await;
        let newest = "group_idx (fingerprint=? AND failed_at=?)";
        let ways: Vec<_> = steps.iter().filter(|step| step.contains(" l ")).collect();
        if !matches!(&ways[..], [all, one] if all.contains(index) && one.contains(newest)) {
            astray.push(format!("letters_groups of {words}: {steps:?}; {when}"));
        }
    }
    for words in ["", "after"] {
        let steps = over(pool, include_str!("../sql/letters_unmarked.sql"), words).await;
        if !matches!(&steps[..], [one] if one.contains("group_idx (fingerprint=?")) {
            astray.push(format!("letters_unmarked {words}: {steps:?}; {when}"));
        }
    }
    astray
}

/// Whether a batch of many rows that follow each other goes by ranges.
async fn goes_by_ranges(batches: &Batches, connection: &mut SqliteConnection) -> bool {
    let rows: Vec<_> = (1..=100).map(|id| (Lease { id, token: Uuid::nil() }, ())).collect();
    batches.runs("ack", connection, &rows, true).await.unwrap().saved() > 0
}

/// The same, for a table that has only our indexes.
async fn by_ranges(batches: &Batches, pool: &SqlitePool) -> bool {
    let mut connection = pool.acquire().await.unwrap();
    let ranges = goes_by_ranges(batches, &mut connection).await;
    // The batches ask for the plan of one write. The others have to be alike.
    for write in WRITES {
        let explain = format!("EXPLAIN QUERY PLAN {}", write.replace(ROW, RANGE));
        let explain = sqlx::query(AssertSqlSafe(explain)).persistent(false);
        let steps = explain.fetch_all(&mut *connection).await.unwrap();
        let found = steps.iter().any(|step| step.get::<String, _>(3).starts_with("SEARCH outbox"));
        assert_eq!(found, ranges, "{write}");
    }
    ranges
}

#[test]
fn every_write_names_its_row_in_the_way_that_a_range_replaces() {
    for write in WRITES.into_iter().chain([BURIED, GONE]) {
        let code = write.lines().filter(|line| !line.starts_with("--"));
        assert_eq!(code.map(|line| line.matches(ROW).count()).sum::<usize>(), 1, "{write}");
        assert_eq!(write.matches(ROW).count(), 1, "{write}");
    }
}

#[tokio::test]
async fn where_sqlite_would_read_all_for_a_range_each_row_is_looked_up() {
    let batches = Batches::new(&TableNames::default());
    let path = std::env::temp_dir().join(format!("outbox-{}.db", Uuid::new_v4()));
    let options = SqliteConnectOptions::new().filename(&path).create_if_missing(true);
    let pool = || async {
        let one = SqlitePoolOptions::new().max_connections(1);
        one.connect_with(options.clone()).await.unwrap()
    };
    // What one connection learns of the table, the other has to notice.
    let (pool, other) = (pool().await, pool().await);
    crate::schema::migrate_tables(&pool, &TableNames::default()).await.unwrap();
    let fill = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 5000)
        INSERT INTO outbox (queue, payload) SELECT 'q', x'37' FROM n";
    for told in [&pool, &other] {
        assert!(by_ranges(&batches, &pool).await, "never analysed, or known to be full");
        exec(told, "INSERT INTO outbox (queue, payload) VALUES ('q', x'37'); ANALYZE").await;
        exec(told, fill).await;
        assert!(!by_ranges(&batches, &pool).await, "known to have a row");
        exec(told, "DROP TABLE sqlite_stat1; DELETE FROM outbox; VACUUM").await;
    }
    pool.close().await;
    other.close().await;
    std::fs::remove_file(path).unwrap();
}

/// A plan tells of indexes by name.
#[tokio::test]
async fn an_index_of_somebody_with_a_name_that_is_no_utf_8_keeps_no_batch_waiting() {
    let pool = tables().await;
    exec(
        &pool,
        "CREATE INDEX \"caf~\" ON outbox (acquired_token, id);
         PRAGMA writable_schema = ON;
         UPDATE sqlite_master SET name = replace(name, '~', CAST(x'e9' AS TEXT)),
             sql = replace(sql, '~', CAST(x'e9' AS TEXT)) WHERE type = 'index';
         PRAGMA writable_schema = RESET",
    )
    .await;
    let mut connection = pool.acquire().await.unwrap();
    assert!(goes_by_ranges(&Batches::new(&TableNames::default()), &mut connection).await);
}

async fn tables() -> SqlitePool {
    let pool =
        SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.unwrap();
    crate::schema::migrate_tables(&pool, &TableNames::default()).await.unwrap();
    pool
}

/// Runs `judge` on tables of every kind that ANALYZE tells apart.
async fn in_every_state(judge: impl AsyncFn(&SqlitePool, &str) -> Vec<String>) -> Vec<String> {
    let pool = tables().await;
    let mut found = judge(&pool, "never analysed").await;
    exec(&pool, "ANALYZE").await;
    found.extend(judge(&pool, "known to be empty").await);
    exec(
        &pool,
        "INSERT INTO outbox (queue, payload) VALUES ('q', x'37');
         INSERT INTO outbox_dlq (original_id, queue, payload, deliveries_count, created_at,
             failure_reason, fingerprint) VALUES (1, 'q', x'37', 1, 1, 'rejected', 'f');
         ANALYZE",
    )
    .await;
    found.extend(judge(&pool, "known to have a row").await);
    exec(
        &pool,
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 20000)
         INSERT INTO outbox (queue, payload) SELECT 'q' || (n % 3), x'37' FROM n;
         INSERT INTO outbox_dlq (original_id, queue, payload, deliveries_count, created_at,
             failure_reason, fingerprint, status)
         SELECT id, queue, payload, 1, 1, 'rejected', 'f' || (id % 100),
             iif(id % 4 = 0, 'resolved', 'failed') FROM outbox;
         ANALYZE",
    )
    .await;
    found.extend(judge(&pool, "known to be full").await);
    found
}

#[tokio::test]
async fn no_question_of_an_operator_reads_a_table_whole() {
    let found = in_every_state(faults).await;
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test]
async fn the_letters_of_a_filter_are_read_by_the_index_that_narrows_most() {
    let found = in_every_state(astray).await;
    assert!(found.is_empty(), "{found:#?}");
}
