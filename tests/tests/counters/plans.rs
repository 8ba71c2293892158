//! No statement reads or sorts more of the table than it asks for, whatever the
//! planner knows of it.

use outbox::TableNames;
use outbox_tests::db::Db;
use outbox_tests::on_postgres;

use super::explain::{Plans, explained};
use super::work::Work;

on_postgres!(no_statement_scans_or_sorts_a_table_of_a_million_rows);

/// Rows that one node of a plan may read: a batch is a thousand, and whoever looks
/// for a lost claim looks at ten thousand.
const MOST: f64 = 20_000.0;
const MODES: [&str; 3] = ["auto", "force_generic_plan", "force_custom_plan"];
const TABLE: &str = "million";

/// Rows of other queues, rows that are still to come, timers, and most of them due.
const ROWS: &str = "INSERT INTO million (queue, payload, next_attempt_at, timer_id)
    SELECT CASE WHEN n % 5 = 0 THEN 'other ' || n % 50 ELSE 'many' END, '\\x37',
        clock_timestamp() + CASE WHEN n % 10 = 1 THEN 1 ELSE -1 END * interval '1 hour',
        CASE WHEN n % 10 = 1 THEN 'named ' || n END
    FROM generate_series(1, 1000000) AS n";

async fn no_statement_scans_or_sorts_a_table_of_a_million_rows(db: &Db) {
    let names = TableNames::new(TABLE).unwrap().with_dlq("million_dead").unwrap();
    let db = db.named(names);
    db.migrate().await;
    // Nobody but the test says what the planner knows.
    db.exec("ALTER TABLE million SET (autovacuum_enabled = off)").await;
    let plans = Plans::of(TABLE);

    // Plans that were made while the table was new, and while it was known to be
    // empty, and are kept by connections that stay open.
    let mut open = Vec::new();
    for when in ["new", "empty"] {
        for mode in MODES {
            open.push((format!("{mode}, planned on a table that was {when}"), on(&db, mode)));
        }
        for (_, work) in &open {
            warm(work).await;
        }
        db.exec("DELETE FROM million").await;
        db.exec("VACUUM (ANALYZE, TRUNCATE) million").await;
    }
    db.exec(ROWS).await;
    let mut faults = Faults { plans, found: Vec::new() };
    faults.none_yet();
    for (when, work) in &open {
        faults.look(when, work).await;
    }
    for when in ["never analysed", "analysed"] {
        if when == "analysed" {
            db.exec("ANALYZE million").await;
        }
        for mode in MODES {
            let work = on(&db, mode);
            warm(&work).await;
            faults.look(&format!("{mode}, {when}"), &work).await;
            work.close().await;
        }
    }
    // Full of rows that are gone, and known to have a million.
    db.exec("DELETE FROM million").await;
    for mode in MODES {
        let work = on(&db, mode);
        faults.look(&format!("{mode}, just emptied"), &work).await;
        work.close().await;
    }
    for (_, work) in open {
        work.close().await;
    }
    assert!(faults.found.is_empty(), "{}", faults.found.join("\n"));
}

fn on(db: &Db, mode: &str) -> Work {
    let options = explained((*db.pg().connect_options()).clone());
    Work::on(options.options([("plan_cache_mode", mode)]), &db.names)
}

/// The server makes a plan for all parameters when it has made five for some.
async fn warm(work: &Work) {
    for _ in 0..7 {
        work.all("few", 4).await;
    }
}

struct Faults {
    plans: Plans,
    found: Vec<String>,
}

impl Faults {
    fn none_yet(&self) {
        assert!(self.plans.take().len() > 100, "the server sends no plans");
    }

    async fn look(&mut self, when: &str, work: &Work) {
        self.plans.take();
        for (queue, rows) in [("few", 2), ("many", 2), ("many", 1000)] {
            work.all(queue, rows).await;
            let plans = self.plans.take();
            assert!(plans.len() >= 20, "{} statements", plans.len());
            for plan in plans {
                for fault in self.plans.faults(&plan, MOST) {
                    let line = format!("{fault} ({when}; {rows} of {queue}): {}", plan.name());
                    self.found.push(line);
                }
            }
        }
    }
}
