//! The plans of SQLite's statements, when ANALYZE saw the table nearly empty and it has
//! grown since: nothing reads all of it, and nothing sorts.

use outbox_tests::db::{Db, Pool};
use sqlx::{AssertSqlSafe, Row as _, SqlitePool};

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
    for (name, sql) in statements!["claim_places", "claim_read", "next_due", "pending"] {
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
