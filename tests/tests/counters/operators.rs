//! What operators ask costs a bounded number of rows, whatever the planner knows of the
//! table and whatever the session of the operator says.

use std::collections::BTreeSet;

use outbox::ops::{Operator, PeekOptions, SampleOptions, WhyOptions};
use outbox::{Publisher, TableNames};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use sqlx::Connection;
use sqlx::postgres::{PgConnection, PgPoolOptions};

use super::explain::{Plans, explained};

on_postgres!(no_question_of_an_operator_reads_a_table_of_a_million_rows);

const TABLE: &str = "operated";
const DLQ: &str = "operated_dead";
/// Rows that are counted of each queue, and letters that are looked at.
const BOUND: u64 = 1000;
/// Queues that there are.
const QUEUES: f64 = 12.0;
/// Rows that `why` counts before a row.
const BEFORE: f64 = 10_000.0;

/// Most of them in one queue, due; some leased, some still to come.
fn rows(count: u32) -> String {
    format!(
        "INSERT INTO operated (queue, payload, next_attempt_at, acquired_token, acquired_at)
         SELECT CASE WHEN n % 5 = 0 THEN 'other ' || n % 50 ELSE 'many' END, '\\x37',
             clock_timestamp() + CASE WHEN n % 10 = 1 THEN 1 ELSE -1 END * interval '1 hour',
             CASE WHEN n % 100 = 2 THEN gen_random_uuid() END,
             CASE WHEN n % 100 = 2 THEN clock_timestamp() END
         FROM generate_series(1, {count}) AS n"
    )
}

fn letters(count: u32) -> String {
    format!(
        "INSERT INTO operated_dead (original_id, queue, payload, deliveries_count, created_at,
             failed_at, failure_reason, status)
         SELECT n, CASE WHEN n % 5 = 0 THEN 'dead' ELSE 'many' END, '\\x37', 1, now(),
             now() - n * interval '1 second', 'rejected',
             CASE WHEN n % 3 = 0 THEN 'resolved' ELSE 'failed' END
         FROM generate_series(1, {count}) AS n"
    )
}

async fn no_question_of_an_operator_reads_a_table_of_a_million_rows(db: &Db) {
    let names = TableNames::new(TABLE).unwrap().with_dlq(DLQ).unwrap();
    let db = db.named(names);
    db.migrate().await;
    for table in [TABLE, DLQ] {
        db.exec(format!("ALTER TABLE {table} SET (autovacuum_enabled = off)")).await;
    }
    let mut asked = Asked { plans: [Plans::of(TABLE), Plans::of(DLQ)], faults: BTreeSet::new() };
    db.exec(rows(1_000_000)).await;
    db.exec(letters(200_000)).await;
    asked.all(&db, "never analysed").await;
    for table in [TABLE, DLQ] {
        db.exec(format!("ANALYZE {table}")).await;
    }
    asked.all(&db, "analysed").await;
    asked.pending(&db).await;
    for (table, fill) in [(TABLE, rows(200_000)), (DLQ, letters(100_000))] {
        db.exec(format!("DELETE FROM {table}")).await;
        db.exec(format!("VACUUM (ANALYZE, TRUNCATE) {table}")).await;
        db.exec(fill).await;
    }
    asked.all(&db, "known to be empty").await;
    assert!(asked.faults.is_empty(), "{:#?}", asked.faults);
}

struct Asked {
    plans: [Plans; 2],
    faults: BTreeSet<String>,
}

impl Asked {
    async fn all(&mut self, db: &Db, when: &str) {
        for session in [
            &[][..],
            &[("plan_cache_mode", "force_generic_plan")],
            &[("enable_indexscan", "off"), ("enable_indexonlyscan", "off")],
            &[("default_transaction_isolation", "serializable")],
        ] {
            let options = explained((*db.pg().connect_options()).clone());
            let options = options.options(session.iter().copied());
            let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
            let operator = Operator::postgres(pool.clone(), db.names.clone());
            // A plan for all parameters is made after five for some.
            for _ in 0..7 {
                self.ask(db, &operator, &format!("{when}, with {session:?}")).await;
            }
            pool.close().await;
        }
    }

    async fn ask(&mut self, db: &Db, operator: &Operator, when: &str) {
        operator.queues(100).await.unwrap();
        self.heard("queues", 2.0 * QUEUES, when);
        let mut options = SampleOptions::default();
        options.bound = Some(BOUND);
        let sample = operator.sample(&options).await.unwrap();
        assert!(sample.queues.iter().filter(|queue| queue.bounded).count() > 8, "{sample:?}");
        let most = (BOUND + 1) as f64;
        self.heard("sample", QUEUES * most, when);
        assert_eq!(operator.peek("many", &PeekOptions::default()).await.unwrap().len(), 10);
        self.heard("peek", 10.0, when);
        let last = db.int(format!("SELECT max(id) FROM {TABLE} WHERE queue = 'many'")).await;
        let mut options = WhyOptions::default();
        options.letters = Some(BOUND);
        for id in [last, last - 7, 0] {
            operator.why(id, &options).await.unwrap();
            self.heard("why", BEFORE, when);
        }
    }

    /// What a program asks on its own connection, where nobody says how it is planned.
    async fn pending(&mut self, db: &Db) {
        let options = explained((*db.pg().connect_options()).clone());
        let mut connection = PgConnection::connect_with(&options).await.unwrap();
        let publisher = Publisher::new(db.names.clone());
        assert_eq!(publisher.pending(&mut connection, "many", 10).await.unwrap().len(), 10);
        self.heard("pending", 10.0, "analysed");
    }

    fn heard(&mut self, what: &str, most: f64, when: &str) {
        let mut heard = 0;
        for plans in &self.plans {
            for plan in plans.take() {
                heard += 1;
                let faults = plans.faults(&plan, most).into_iter();
                let said = faults.map(|it| format!("{what}: {}: {it}; {when}", plan.name()));
                self.faults.extend(said);
            }
        }
        assert!(heard > 0, "the server sends no plans of {what}");
    }
}
