//! The plans of SQLite's statements, when ANALYZE saw the table nearly empty and it has
//! grown since: nothing reads all of it, and nothing sorts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use outbox_tests::db::{Db, Pool};
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{AssertSqlSafe, Row as _, Sqlite, SqlitePool};

macro_rules! statements {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../../../outbox/src/store/sqlite/sql/", $name, ".sql")))),+]
    };
}

/// What reads the table, with its index.
async fn searches(pool: &SqlitePool, name: &str, sql: &str) -> Vec<String> {
    let rows = sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"))).fetch_all(pool);
    let rows = rows.await.unwrap();
    let steps: Vec<String> = rows.iter().map(|row| row.get(3)).collect();
    assert!(!steps.iter().any(|step| step.contains("TEMP B-TREE")), "{name} sorts: {steps:?}");
    steps.into_iter().filter(|step| step.contains("outbox")).collect()
}

async fn grown_since_analyze() -> Option<(Db, SqlitePool)> {
    let db = Db::sqlite().await?;
    let Pool::Sqlite(pool) = &db.pool else { unreachable!() };
    let pool = pool.clone();
    db.publish("q", 1).await;
    db.exec("ANALYZE").await;
    db.exec(
        "WITH RECURSIVE each(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM each WHERE n < 5000)
         INSERT INTO outbox (queue, payload) SELECT 'q', x'' FROM each",
    )
    .await;
    Some((db, pool))
}

#[tokio::test]
async fn sqlite_looks_every_row_up_by_its_id() {
    let Some((db, pool)) = grown_since_analyze().await else { return };
    // What a batch runs for each of its rows.
    for (name, sql) in statements!["claim_take", "ack", "retry", "bury", "release", "extend"] {
        let found = searches(&pool, name, sql).await;
        assert_eq!(found, ["SEARCH outbox USING INTEGER PRIMARY KEY (rowid=?)"], "{name}");
    }
    db.close().await;
}

#[tokio::test]
async fn sqlite_reads_what_is_due_in_the_order_of_its_index() {
    let Some((db, pool)) = grown_since_analyze().await else { return };
    for (name, sql) in
        statements!["claim_places", "claim_read", "claim_read_later", "next_due", "pending"]
    {
        let found = searches(&pool, name, sql).await;
        assert!(!found.is_empty(), "{name}");
        for step in found {
            let by_index = step.starts_with("SEARCH outbox USING")
                && step.contains("outbox_due_idx")
                || step == "USING INDEX sqlite_autoindex_outbox_paused_1 FOR IN-OPERATOR";
            assert!(by_index, "{name}: {step}");
        }
    }
    db.close().await;
}

/// How many rows it answers, and how many steps it takes SQLite.
async fn steps(pool: &SqlitePool, query: Query<'_, Sqlite, SqliteArguments>) -> (usize, u64) {
    let mut connection = pool.acquire().await.unwrap();
    let steps = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&steps);
    connection.lock_handle().await.unwrap().set_progress_handler(1, move || {
        counted.fetch_add(1, Ordering::Relaxed);
        true
    });
    let rows = query.fetch_all(&mut *connection).await.unwrap().len();
    connection.lock_handle().await.unwrap().remove_progress_handler();
    (rows, steps.load(Ordering::Relaxed))
}

/// With `(next_attempt_at, id) > (?, ?)` SQLite goes by the time alone.
#[tokio::test]
async fn sqlite_finds_rows_of_one_time_by_their_ids() {
    const FEW: u64 = 60 * 100;
    let Some((db, pool)) = grown_since_analyze().await else { return };
    db.exec(
        "UPDATE outbox SET next_attempt_at = 7, acquired_token = x'01', acquired_at = 8;
         UPDATE outbox SET acquired_token = x'02' WHERE id BETWEEN 3001 AND 3100;
         UPDATE outbox SET acquired_token = NULL, acquired_at = NULL WHERE id > 4000",
    )
    .await;
    let [(_, places), (_, read)] = statements!["claim_places", "claim_read"];
    let ever = i64::MAX / 2;
    let places = sqlx::query(places).bind("q").bind(ever).bind(7).bind(4000).bind(100);
    let (_, found) = steps(&pool, places).await;
    let read = sqlx::query(read).bind("q").bind(&[2_u8][..]).bind(7).bind(3001).bind(100);
    let (rows, took) = steps(&pool, read).await;
    assert_eq!(rows, 100);
    assert!(found < FEW && took < FEW, "{found} and {took} steps for a hundred of five thousand");
    db.close().await;
}
