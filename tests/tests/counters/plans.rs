//! No statement reads or sorts more of the table than it asks for, whatever the
//! planner knows of it.

use std::collections::BTreeSet;

use outbox::TableNames;
use outbox::testing::store::{Expects, Position};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use sqlx::Executor;

use super::buffers;
use super::explain::{Plans, explained};
use super::work::Work;

on_postgres!(no_statement_scans_or_sorts_a_table_of_a_million_rows);

/// Rows that one node of a plan may read: a batch is a thousand, and whoever looks
/// for a lost claim looks at ten thousand.
const MOST: f64 = 20_000.0;
const MODES: [&str; 3] = ["auto", "force_generic_plan", "force_custom_plan"];
const TABLE: &str = "million";

/// Rows of other queues, rows that are still to come, timers, and most of them due.
fn rows(count: u32) -> String {
    format!(
        "INSERT INTO million (queue, payload, next_attempt_at, timer_id)
         SELECT CASE WHEN n % 5 = 0 THEN 'other ' || n % 50 ELSE 'many' END, '\\x37',
             clock_timestamp() + CASE WHEN n % 10 = 1 THEN 1 ELSE -1 END * interval '1 hour',
             CASE WHEN n % 10 = 1 THEN 'named ' || n END
         FROM generate_series(1, {count}) AS n"
    )
}

async fn no_statement_scans_or_sorts_a_table_of_a_million_rows(db: &Db) {
    let names = TableNames::new(TABLE).unwrap().with_dlq("million_dead").unwrap();
    let db = db.named(names);
    db.migrate().await;
    // Nobody but the test says what the planner knows.
    db.exec("ALTER TABLE million SET (autovacuum_enabled = off)").await;
    let mut faults = Faults { plans: Plans::of(TABLE), found: BTreeSet::new() };

    faults.grown(&db, 1_000_000, "planned when the table was new").await;
    faults.of_fresh(&db, "never analysed").await;
    db.exec("ANALYZE million").await;
    faults.of_fresh(&db, "analysed").await;
    a_claim_reads_few_pages(&db, &faults.plans).await;
    a_claim_that_drains_does_not_try_to_lock_what_another_has(&db, &faults.plans).await;
    // Which empties it.
    who_begins_behind_dead_rows_reads_few_pages(&db, &faults.plans).await;
    faults.of_fresh(&db, "just emptied").await;
    db.exec("DELETE FROM million").await;
    db.exec("VACUUM (ANALYZE, TRUNCATE) million").await;
    faults.grown(&db, 200_000, "planned when the table was known to be empty").await;
    faults.of_fresh(&db, "known to be empty").await;
    // What a queue leaves behind that is mostly drained: the pages, and no row.
    db.exec("DELETE FROM million").await;
    db.exec("VACUUM (ANALYZE, TRUNCATE off) million").await;
    faults.grown(&db, 200_000, "planned when all of its pages were known to be empty").await;
    assert!(faults.found.is_empty(), "{:#?}", faults.found);
}

async fn a_claim_reads_few_pages(db: &Db, plans: &Plans) {
    // What went before has left dead rows in front.
    db.exec("VACUUM million").await;
    for expects in [Expects::Plenty, Expects::Many, Expects::Few] {
        let (taken, pages) = buffers::of_ten(db, plans, None, expects).await;
        assert!(pages.iter().all(|pages| *pages <= buffers::FEW), "{pages:?} for ten of a million");
        let place = taken.rows.last().map(|last| Position::of(&last.row));
        let (_, pages) = buffers::of_ten(db, plans, place, expects).await;
        assert!(pages.iter().all(|pages| *pages <= buffers::FEW), "{pages:?} for the next ten");
    }
}

/// As another claim has locked them that is under way.
async fn a_claim_that_drains_does_not_try_to_lock_what_another_has(db: &Db, plans: &Plans) {
    let mut other = db.pg().begin().await.unwrap();
    let lock = format!(
        "SELECT id FROM million WHERE queue = 'many' AND acquired_token IS NULL
             AND next_attempt_at <= clock_timestamp()
         ORDER BY next_attempt_at, id LIMIT {} FOR UPDATE",
        buffers::LOCKED
    );
    other.execute(sqlx::AssertSqlSafe(lock)).await.unwrap();
    let behind_nothing = Position { due: std::time::SystemTime::UNIX_EPOCH, id: 0 };
    let (_, [read, _]) = buffers::of_ten(db, plans, Some(behind_nothing), Expects::Plenty).await;
    assert!(read < buffers::LOCKED / 2, "{read} pages to pass by {} rows", buffers::LOCKED);
    let (_, [read, _]) = buffers::of_ten(db, plans, None, Expects::Plenty).await;
    assert!(read > buffers::LOCKED, "{read} pages from the start: nobody had locked them");
    other.rollback().await.unwrap();
}

/// A snapshot keeps the server from clearing them away.
async fn who_begins_behind_dead_rows_reads_few_pages(db: &Db, plans: &Plans) {
    let mut report = db.pg().begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    report.execute("SELECT count(*) FROM pg_class").await.unwrap();
    db.exec("DELETE FROM million").await;
    // What went before put rows off for a second: they are dead, too, and lie in front.
    db.exec("SELECT pg_sleep(1.1)").await;
    for expects in [Expects::Plenty, Expects::Many, Expects::Few] {
        buffers::ten_more(db).await;
        let (taken, [read, _]) = buffers::of_ten(db, plans, None, expects).await;
        assert!(read >= buffers::MANY, "{read} pages: nothing was in the way");
        buffers::ten_more(db).await;
        let place = taken.rows.last().map(|last| Position::of(&last.row));
        let (_, [read, _]) = buffers::of_ten(db, plans, place, expects).await;
        assert!(read <= buffers::FEW, "{read} pages behind what is dead");
    }
    report.rollback().await.unwrap();
    db.exec("DELETE FROM million").await;
}

fn on(db: &Db, mode: &str) -> Work {
    let options = explained((*db.pg().connect_options()).clone());
    Work::on(options.options([("plan_cache_mode", mode)]), &db.names)
}

/// The server makes a plan for all parameters when it has made five for some.
async fn warm(work: &Work) {
    for _ in 0..7 {
        work.all("few", 4).await.unwrap();
    }
}

struct Faults {
    plans: Plans,
    found: BTreeSet<String>,
}

impl Faults {
    /// What connections do that have planned all before the table got its rows.
    async fn grown(&mut self, db: &Db, count: u32, when: &str) {
        let open = MODES.map(|mode| (mode, on(db, mode)));
        for (_, work) in &open {
            warm(work).await;
        }
        assert!(self.plans.take().len() > 100, "the server sends no plans");
        db.exec(rows(count)).await;
        for (mode, work) in open {
            self.look(&format!("{mode}, {when}"), &work).await;
            work.close().await;
        }
    }

    async fn of_fresh(&mut self, db: &Db, when: &str) {
        for mode in MODES {
            let work = on(db, mode);
            warm(&work).await;
            self.look(&format!("{mode}, {when}"), &work).await;
            work.close().await;
        }
    }

    async fn look(&mut self, when: &str, work: &Work) {
        self.plans.take();
        for (queue, rows) in [("few", 2), ("many", 2), ("many", 1000)] {
            if let Err(error) = work.all(queue, rows).await {
                self.found.insert(format!("{error}; {when}"));
            }
            let plans = self.plans.take();
            for plan in plans {
                for fault in self.plans.faults(&plan, MOST) {
                    self.found.insert(format!("{}: {fault}; {when}", plan.name()));
                }
            }
        }
    }
}
