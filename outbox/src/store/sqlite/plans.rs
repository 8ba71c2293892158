//! What operators ask reads by index, and what is written goes by ids, whatever ANALYZE saw.

use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, Row as _};
use uuid::Uuid;

use super::batch::Batches;
use crate::store::Lease;
use crate::store::names::TableNames;

const QUESTIONS: [(&str, &str); 9] = [
    ("queues", include_str!("sql/queues.sql")),
    ("counts", include_str!("sql/counts.sql")),
    ("peek", include_str!("sql/peek.sql")),
    ("timer_row", include_str!("sql/timer_row.sql")),
    ("why_row", include_str!("sql/why_row.sql")),
    ("why_before", include_str!("sql/why_before.sql")),
    ("why_readers", include_str!("sql/why_readers.sql")),
    ("why_letters", include_str!("sql/why_letters.sql")),
    ("why_more_letters", include_str!("sql/why_more_letters.sql")),
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
                // The letters from the end, no further than is asked for.
                "why_letters" | "why_more_letters" => step.starts_with("SCAN outbox_dlq"),
                // The first of each queue; and the pauses, of which there are few.
                "queues" => step.contains("INDEX") || step == "SCAN outbox_paused",
                _ => false,
            };
            let whole = scans && !by_design;
            // By their status all open letters of all queues are read.
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

/// Whether a batch of many rows that follow each other goes by ranges.
async fn by_ranges(pool: &SqlitePool) -> bool {
    let batches = Batches::new(&TableNames::default());
    let rows: Vec<_> = (1..=100).map(|id| (Lease { id, token: Uuid::nil() }, ())).collect();
    let mut connection = pool.acquire().await.unwrap();
    batches.runs("ack", &mut connection, &rows, true).await.unwrap().saved() > 0
}

#[tokio::test]
async fn where_sqlite_would_read_all_for_a_range_each_row_is_looked_up() {
    let pool = tables().await;
    assert!(by_ranges(&pool).await, "never analysed");
    let fill = "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 5000)
        INSERT INTO outbox (queue, payload) SELECT 'q', x'37' FROM n";
    exec(&pool, "INSERT INTO outbox (queue, payload) VALUES ('q', x'37'); ANALYZE").await;
    exec(&pool, fill).await;
    assert!(!by_ranges(&pool).await, "known to have a row");
    exec(&pool, "ANALYZE").await;
    assert!(by_ranges(&pool).await, "known to be full");
}

async fn tables() -> SqlitePool {
    let pool =
        SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.unwrap();
    crate::schema::migrate_tables(&pool, &TableNames::default()).await.unwrap();
    pool
}

#[tokio::test]
async fn no_question_of_an_operator_reads_a_table_whole() {
    let pool = tables().await;
    let mut found = faults(&pool, "never analysed").await;
    exec(&pool, "ANALYZE").await;
    found.extend(faults(&pool, "known to be empty").await);
    exec(
        &pool,
        "INSERT INTO outbox (queue, payload) VALUES ('q', x'37');
         INSERT INTO outbox_dlq (original_id, queue, payload, deliveries_count, created_at,
             failure_reason) VALUES (1, 'q', x'37', 1, 1, 'rejected');
         ANALYZE",
    )
    .await;
    found.extend(faults(&pool, "known to have a row").await);
    exec(
        &pool,
        "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 20000)
         INSERT INTO outbox (queue, payload) SELECT 'q' || (n % 3), x'37' FROM n;
         INSERT INTO outbox_dlq (original_id, queue, payload, deliveries_count, created_at,
             failure_reason) SELECT id, queue, payload, 1, 1, 'rejected' FROM outbox;
         ANALYZE",
    )
    .await;
    found.extend(faults(&pool, "known to be full").await);
    assert!(found.is_empty(), "{found:#?}");
}
