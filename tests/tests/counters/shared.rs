//! On a table that is shared with Python, whose indexes of free and of leased rows cost every
//! claim their entries, no statement of ours reads them. Planned while the table was taken for
//! empty, a settle that does so reads all that is leased, and locks it in another order.

use std::collections::BTreeSet;

use outbox::TableNames;
use outbox::ops::{Operator, PeekOptions, SampleOptions, WhyOptions};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::explain::{Plans, explained};
use super::work::Work;

on_postgres!(no_statement_reads_an_index_of_pythons);

const TABLE: &str = "common";
/// As `faststream-outbox` makes them, and the README.
const OF_PYTHON: &str = "
    CREATE INDEX common_pending_idx ON common (queue, next_attempt_at, id) WHERE acquired_token IS NULL;
    CREATE INDEX common_leased_idx ON common (queue, next_attempt_at, id) WHERE acquired_token IS NOT NULL;
    ALTER TABLE common SET (autovacuum_enabled = off)";
const NAMES: [&str; 2] = ["common_pending_idx", "common_leased_idx"];
/// Most of them due; some leased, some timers.
const ROWS: &str = "
    INSERT INTO common (queue, payload, next_attempt_at, timer_id, acquired_token, acquired_at)
    SELECT CASE WHEN n % 5 = 0 THEN 'other' ELSE 'few' END, '\\x37',
        clock_timestamp() + CASE WHEN n % 10 = 1 THEN 1 ELSE -1 END * interval '1 hour',
        CASE WHEN n % 10 = 1 THEN 'named ' || n END,
        CASE WHEN n % 20 = 2 THEN gen_random_uuid() END,
        CASE WHEN n % 20 = 2 THEN clock_timestamp() END
    FROM generate_series(1, 100000) AS n";

async fn no_statement_reads_an_index_of_pythons(db: &Db) {
    let names = TableNames::new(TABLE).unwrap().with_dlq("common_dead").unwrap();
    let db = db.named(names);
    db.migrate().await;
    db.exec(OF_PYTHON).await;
    let plans = Plans::of(TABLE);
    let (mut heard, mut faults) = (BTreeSet::new(), BTreeSet::new());
    for (when, change) in [
        ("new", ""),
        ("with rows that it does not know of", ROWS),
        ("vacuumed", "VACUUM (ANALYZE) common"),
        ("emptied", "DELETE FROM common"),
        ("known to be empty", "VACUUM (ANALYZE, TRUNCATE) common"),
        ("filled again", ROWS),
    ] {
        db.exec(change).await;
        for mode in ["force_generic_plan", "force_custom_plan"] {
            let options = explained((*db.pg().connect_options()).clone());
            let options = options.options([("plan_cache_mode", mode)]);
            let work = Work::on(options.clone(), &db.names);
            work.in_vain("nothing").await.unwrap();
            work.all("few", 4).await.unwrap();
            work.close().await;
            asked(options, &db).await;
            for plan in plans.take() {
                let indexes = plan.indexes().into_iter();
                let foreign = indexes.filter(|it| NAMES.contains(&it.as_str()));
                faults.extend(foreign.map(|it| format!("{}: {it}; {when}, {mode}", plan.name())));
                heard.insert(plan.name().to_owned());
            }
        }
    }
    assert!(heard.len() > 20, "the server sends no plans: {heard:#?}");
    assert!(faults.is_empty(), "{faults:#?}");
}

/// By operators.
async fn asked(options: PgConnectOptions, db: &Db) {
    let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    let operator = Operator::postgres(pool.clone(), db.names.clone());
    operator.queues(10).await.unwrap();
    operator.sample(&SampleOptions::default()).await.unwrap();
    operator.peek("few", &PeekOptions::default()).await.unwrap();
    let last = db.int(format!("SELECT coalesce(max(id), 0) FROM {TABLE}")).await;
    operator.why(last, &WhyOptions::default()).await.unwrap();
    pool.close().await;
}
