//! A planner that is free to do as it likes: a claim takes as many rows as it asks for.

use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use sqlx::AssertSqlSafe;

on_postgres!(a_claim_takes_no_more_than_it_asks_for_whatever_the_plan);

/// Nested loops, and each of the others by turns.
const SETTINGS: [&str; 6] = [
    "enable_hashjoin = off; SET LOCAL enable_mergejoin = off",
    "enable_nestloop = off; SET LOCAL enable_mergejoin = off",
    "enable_nestloop = off; SET LOCAL enable_hashjoin = off",
    "enable_indexscan = off; SET LOCAL enable_bitmapscan = off",
    "enable_material = off; SET LOCAL enable_memoize = off; SET LOCAL enable_tidscan = off",
    "from_collapse_limit = 1; SET LOCAL join_collapse_limit = 1",
];

async fn a_claim_takes_no_more_than_it_asks_for_whatever_the_plan(db: &Db) {
    let rows = "INSERT INTO outbox (queue, payload) SELECT 'q', '' FROM generate_series(1, 1000)";
    db.exec(rows).await;
    for statistics in ["SELECT 1", "ANALYZE outbox"] {
        db.exec(statistics).await;
        for settings in SETTINGS {
            for mode in ["force_custom_plan", "force_generic_plan"] {
                let taken = taken(db, settings, mode).await;
                assert_eq!(taken, (5, 5), "{settings}, {mode}, after {statistics}");
            }
        }
    }
}

/// Rows that a claim of five answers with, and that it leased.
async fn taken(db: &Db, settings: &str, mode: &str) -> (usize, i64) {
    let claim = include_str!("../../../outbox/src/store/postgres/sql/claim.sql");
    let mut tx = db.pg().begin().await.unwrap();
    let set = format!("SET LOCAL {settings}; SET LOCAL plan_cache_mode = {mode}");
    sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut *tx).await.unwrap();
    let rows = sqlx::query(claim)
        .bind([5_i64])
        .bind([60_000_000_i64])
        .bind([uuid::Uuid::new_v4()])
        .bind([None::<String>])
        .bind([None::<i64>])
        .bind(["q".to_owned()])
        .bind([1_i64])
        .bind("claims of q")
        .persistent(false)
        .fetch_all(&mut *tx)
        .await
        .unwrap();
    let leased = "SELECT count(*) FROM outbox WHERE acquired_token IS NOT NULL";
    let leased = sqlx::query_scalar(leased).fetch_one(&mut *tx).await.unwrap();
    tx.rollback().await.unwrap();
    (rows.len(), leased)
}
