//! A planner that is free to do as it likes: a claim takes as many rows as it asks for.

use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgArgumentBuffer, PgArguments, PgTypeInfo, Postgres};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Encode, Type};

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

/// Of which one takes none where there are a hundred rows and more.
const FEW: &str =
    "INSERT INTO outbox (queue, payload) SELECT 'few', '' FROM generate_series(1, 50)";
const MANY: &str =
    "INSERT INTO outbox (queue, payload) SELECT 'q', '' FROM generate_series(1, 1000)";

#[derive(Debug, Clone, Copy)]
enum Statement {
    Many,
    Few,
    Full,
}

async fn a_claim_takes_no_more_than_it_asks_for_whatever_the_plan(db: &Db) {
    db.exec(FEW).await;
    db.exec(MANY).await;
    for statistics in ["SELECT 1", "ANALYZE outbox"] {
        db.exec(statistics).await;
        for settings in SETTINGS {
            for mode in ["force_custom_plan", "force_generic_plan"] {
                for statement in [Statement::Many, Statement::Few, Statement::Full] {
                    let taken = taken(db, statement, settings, mode).await;
                    let how = format!("{statement:?}, {settings}, {mode}, after {statistics}");
                    assert_eq!(taken, (5, 5), "{how}");
                }
            }
        }
    }
}

/// Rows that a claim of five answers with, and that it leased.
async fn taken(db: &Db, statement: Statement, settings: &str, mode: &str) -> (usize, i64) {
    let mut tx = db.pg().begin().await.unwrap();
    let set = format!("SET LOCAL {settings}; SET LOCAL plan_cache_mode = {mode}");
    sqlx::raw_sql(AssertSqlSafe(set)).execute(&mut *tx).await.unwrap();
    let claim = match statement {
        Statement::Many => {
            sqlx::query(include_str!("../../../outbox/src/store/postgres/sql/claim.sql"))
                .bind([5_i64])
                .bind([60_000_000_i64])
                .bind([uuid::Uuid::new_v4()])
                .bind([None::<String>])
                .bind([None::<i64>])
                .bind(["q".to_owned()])
                .bind([1_i64])
                .bind("claims of q")
        }
        Statement::Few => of_one_queue(
            include_str!("../../../outbox/src/store/postgres/sql/claim_few.sql"),
            "few",
        ),
        Statement::Full => {
            of_one_queue(include_str!("../../../outbox/src/store/postgres/sql/claim_full.sql"), "q")
                .bind("claims of q")
        }
    };
    let rows = claim.persistent(false).fetch_all(&mut *tx).await.unwrap();
    let leased = "SELECT count(*) FROM outbox WHERE acquired_token IS NOT NULL";
    let leased = sqlx::query_scalar(leased).fetch_one(&mut *tx).await.unwrap();
    tx.rollback().await.unwrap();
    (rows.len(), leased)
}

fn of_one_queue(sql: &'static str, queue: &'static str) -> Query<'static, Postgres, PgArguments> {
    sqlx::query(sql)
        .bind(5_i64)
        .bind(60_000_000_i64)
        .bind(uuid::Uuid::new_v4())
        .bind(None::<Time>)
        .bind(None::<i64>)
        .bind(queue)
}

/// A `timestamptz` that is NULL.
enum Time {}

impl Type<Postgres> for Time {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("timestamptz")
    }
}

impl Encode<'_, Postgres> for Time {
    fn encode_by_ref(&self, _: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        match *self {}
    }
}
