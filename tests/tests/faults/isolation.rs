//! A database that is serializable by default: the engine sets what it needs, and is as
//! fast as on another.

use std::time::Duration;

use outbox::{App, Outgoing};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe::{Probe, free};
use sqlx::postgres::PgPoolOptions;
use tokio::time::Instant;

on_postgres!(a_database_that_is_serializable_by_default_is_no_slower);

/// In so many claims that those of the apps meet.
const ROWS: usize = 1500;
const BATCH: usize = 5;
const APPS: usize = 4;
/// Of each kind, by turns.
const ROUNDS: usize = 5;
/// Of the rate on another database.
const KEPT: f64 = 0.6;

/// Apps that read one queue, on connections that begin with this isolation.
struct Group {
    queue: &'static str,
    probes: Vec<Probe>,
    running: Vec<outbox::RunningApp>,
    took: Vec<Duration>,
}

impl Group {
    async fn start(db: &Db, isolation: &str, queue: &'static str) -> Self {
        let (mut probes, mut running) = (Vec::new(), Vec::new());
        for _ in 0..APPS {
            let options = (*db.pg().connect_options()).clone().application_name("engine");
            let options = options.options([("default_transaction_isolation", isolation)]);
            let pool = PgPoolOptions::new().connect_lazy_with(options);
            let (subscriber, probe) = free("it", queue);
            let app = App::postgres(pool).names(db.names.clone());
            running.push(app.only([subscriber.fetch_batch(BATCH)]).start().await.unwrap());
            probes.push(probe);
        }
        Self { queue, probes, running, took: Vec::new() }
    }

    /// Until its rows are handled and gone.
    async fn round(&mut self, db: &Db) {
        db.send_all((0..ROWS).map(|n| Outgoing::new(self.queue, &n))).await;
        let begun = Instant::now();
        db.drained().await;
        self.took.push(begun.elapsed());
    }

    /// The median.
    fn time(&mut self) -> Duration {
        self.took.sort_unstable();
        self.took[self.took.len() / 2]
    }

    async fn stop(self) -> usize {
        for one in self.running {
            one.stop().await.unwrap();
        }
        self.probes.iter().map(Probe::finished).sum()
    }
}

async fn a_database_that_is_serializable_by_default_is_no_slower(db: &Db) {
    let mut usual = Group::start(db, "read committed", "usual").await;
    let mut strict = Group::start(db, "serializable", "strict").await;
    for _ in 0..ROUNDS {
        usual.round(db).await;
        strict.round(db).await;
    }
    let (normal, took) = (usual.time(), strict.time());
    let kept = normal.as_secs_f64() / took.as_secs_f64();
    println!("{ROWS} rows in {normal:?}, serializable in {took:?}: {kept:.2}");
    let handled = (usual.stop().await, strict.stop().await);
    assert_eq!(handled, (ROUNDS * ROWS, ROUNDS * ROWS), "each once");
    assert!(kept >= KEPT, "{kept:.2} of the rate");
}
