//! A database that is serializable by default: the engine sets what it needs, and is as
//! fast as on another.

use std::time::Duration;

use outbox::{App, Outgoing, Published, Publisher, TimerConflict};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::probe::{Probe, free};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Postgres, Transaction};
use tokio::time::Instant;

on_postgres!(
    a_database_that_is_serializable_by_default_is_no_slower,
    timers_that_serializable_transactions_set_do_not_meet,
    a_timer_that_was_handled_since_the_snapshot_of_its_publisher_is_set,
    a_timer_that_was_claimed_since_the_snapshot_of_its_publisher_is_a_conflict,
);

/// In so many claims that those of the apps meet.
const ROWS: usize = 1500;
const BATCH: usize = 5;
const APPS: usize = 4;
/// So many rounds of each kind are made at least, and at most, by turns.
const ROUNDS: std::ops::RangeInclusive<usize> = 5..=15;
/// Of the rate on another database.
const KEPT: f64 = 0.6;

/// Apps that read one queue, on connections that begin with this isolation.
struct Group {
    queue: &'static str,
    probes: Vec<Probe>,
    running: Vec<outbox::RunningApp>,
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
        Self { queue, probes, running }
    }

    /// How long it takes until its rows are handled and gone.
    async fn round(&self, db: &Db) -> Duration {
        db.send_all((0..ROWS).map(|n| Outgoing::new(self.queue, &n))).await;
        let begun = Instant::now();
        db.drained().await;
        begun.elapsed()
    }

    async fn stop(self) -> usize {
        for one in self.running {
            one.stop().await.unwrap();
        }
        self.probes.iter().map(Probe::finished).sum()
    }
}

/// The best of each: whatever else the machine does slows down some rounds, while what is
/// slower by itself is so in all of them.
async fn a_database_that_is_serializable_by_default_is_no_slower(db: &Db) {
    let usual = Group::start(db, "read committed", "usual").await;
    let strict = Group::start(db, "serializable", "strict").await;
    let (mut normal, mut took) = (Duration::MAX, Duration::MAX);
    let (mut made, mut kept) = (0, 0.0);
    while made < *ROUNDS.start() || (kept < KEPT && made < *ROUNDS.end()) {
        normal = normal.min(usual.round(db).await);
        took = took.min(strict.round(db).await);
        kept = normal.as_secs_f64() / took.as_secs_f64();
        made += 1;
    }
    println!("{ROWS} rows in {normal:?}, serializable in {took:?}: {kept:.2}");
    let handled = (usual.stop().await, strict.stop().await);
    assert_eq!(handled, (made * ROWS, made * ROWS), "each once");
    assert!(kept >= KEPT, "{kept:.2} of the rate");
}

/// One that is moved, and with another message in a batch.
async fn set(db: &Db, tx: &mut Transaction<'static, Postgres>, name: &str) -> Vec<Published> {
    let publisher = Publisher::new(db.names.clone());
    let timer = |name: String| {
        let timer = Outgoing::new("q", &2).timer_id(name).delay(Duration::from_secs(60));
        timer.on_conflict(TimerConflict::Extend)
    };
    let mut published = vec![publisher.send(tx, timer(name.into())).await.unwrap()];
    let batch = vec![timer(format!("{name} too")), Outgoing::new("q", &2)];
    published.extend(publisher.publish_batch(tx, batch).await.unwrap());
    published
}

async fn begin(db: &Db, isolation: &'static str) -> Transaction<'static, Postgres> {
    let begin = match isolation {
        "SERIALIZABLE" => "BEGIN ISOLATION LEVEL SERIALIZABLE",
        _ => "BEGIN ISOLATION LEVEL REPEATABLE READ",
    };
    db.pg().begin_with(begin).await.unwrap()
}

async fn timers_that_serializable_transactions_set_do_not_meet(db: &Db) {
    let (mut one, mut other) = (begin(db, "SERIALIZABLE").await, begin(db, "SERIALIZABLE").await);
    set(db, &mut one, "a").await;
    set(db, &mut other, "b").await;
    one.commit().await.unwrap();
    other.commit().await.unwrap();
    assert_eq!(db.rows().await, 6);
}

/// As docs/limits.md says, which at READ COMMITTED is none.
async fn a_timer_that_was_claimed_since_the_snapshot_of_its_publisher_is_a_conflict(db: &Db) {
    const CLAIM: &str = "UPDATE outbox SET acquired_token = gen_random_uuid(), acquired_at = now()";
    for begin in ["READ COMMITTED", "READ UNCOMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        db.exec("DELETE FROM outbox").await;
        db.send(Outgoing::new("q", &1).timer_id("t")).await;
        let mut tx = db.pg().begin().await.unwrap();
        let level = format!("SET TRANSACTION ISOLATION LEVEL {begin}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(level)).execute(&mut *tx).await.unwrap();
        sqlx::query("SELECT FROM outbox").execute(&mut *tx).await.unwrap();
        db.exec(CLAIM).await;
        let publisher = Publisher::new(db.names.clone());
        let timer = || Outgoing::new("q", &2).timer_id("t").delay(Duration::from_secs(60));
        if begin.starts_with("READ") {
            let moved = timer().on_conflict(TimerConflict::Extend);
            assert_eq!(publisher.send(&mut tx, moved).await.unwrap(), Published::Duplicate);
            db.exec("SELECT FROM outbox FOR UPDATE NOWAIT").await;
            assert_eq!(publisher.send(&mut tx, timer()).await.unwrap(), Published::Duplicate);
            assert!(!publisher.cancel_timer(&mut tx, "q", "t").await.unwrap());
        } else {
            let told = publisher.send(&mut tx, timer()).await.unwrap_err().to_string();
            assert!(told.contains("could not serialize access"), "{told}");
        }
        tx.rollback().await.unwrap();
    }
}

async fn a_timer_that_was_handled_since_the_snapshot_of_its_publisher_is_set(db: &Db) {
    for name in ["t", "t too"] {
        db.send(Outgoing::new("q", &1).timer_id(name)).await;
    }
    db.exec("UPDATE outbox SET acquired_token = gen_random_uuid(), acquired_at = now()").await;
    let mut tx = begin(db, "REPEATABLE READ").await;
    sqlx::query("SELECT FROM outbox").execute(&mut *tx).await.unwrap();
    db.exec("DELETE FROM outbox").await;
    let published = set(db, &mut tx, "t").await;
    assert!(published.iter().all(|one| matches!(one, Published::Inserted(_))), "{published:?}");
    tx.commit().await.unwrap();
    assert_eq!(db.rows().await, 3);
}
