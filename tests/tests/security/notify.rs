//! Anybody who may connect may notify. Whoever does so without end, with whatever words,
//! makes a consumer look no more often than it does anyway, and nothing else.

use std::process::Stdio;
use std::time::{Duration, Instant};

use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::wait::eventually;
use sqlx::postgres::PgPool;
use tokio::process::{Child, Command};

on_postgres!(a_flood_of_notifications_changes_nothing);

/// Of 7,999 bytes each, which is as long as they may be.
const FLOOD: &str = "SELECT count(pg_notify('outbox_outbox', rpad(md5(random()::text || n), 7999, 'x'))) \
    FROM generate_series(1, $1) AS n";
/// Of a queue that somebody reads.
const FORGED: &str = "SELECT pg_notify('outbox_outbox', 'orders')";
/// So many, on each of four connections.
const FORGERIES: usize = 1_000;
const A_SECOND: i64 = 10_000;
const SECONDS: u32 = 4;
/// In a round.
const MESSAGES: i64 = 2_000;

/// A consumer of the queue `orders`, in a process of its own.
struct Consumer(Child);

impl Consumer {
    fn start(db: &Db) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_shop"));
        command
            .arg("run")
            .env_clear()
            .env("DATABASE_URL", format!("{}?application_name=engine", db.url));
        command.env("OUTBOX_DLQ_TABLE", "outbox_dlq").kill_on_drop(true);
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Bytes of memory that it has.
    fn memory(&self) -> u64 {
        let path = format!("/proc/{}/status", self.0.id().unwrap());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib << 10
    }
}

/// How often a queue was claimed from, as the server counts it: each time it is asked
/// once whether the queue is paused. A session that is idle tells its own within 10 s.
async fn looks(db: &Db) -> i64 {
    tokio::time::sleep(Duration::from_millis(10_500)).await;
    let looks =
        "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'outbox_paused_pkey'";
    db.int(looks).await
}

/// Notifies so often a second, for as long as it is polled; says how often it was.
async fn flood(pool: &PgPool, sent: &std::cell::Cell<i64>) {
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    loop {
        tick.tick().await;
        let some = A_SECOND / 20;
        sqlx::query(FLOOD).bind(some).execute(pool).await.unwrap();
        sent.set(sent.get() + some);
    }
}

/// Until they are handled.
async fn round(db: &Db) -> Duration {
    let order = serde_json::json!({ "id": 7, "amount": 1 });
    let messages = (0..MESSAGES).map(|_| outbox::Outgoing::new("orders", &order));
    let began = Instant::now();
    db.send_all(messages).await;
    db.drained().await;
    began.elapsed()
}

async fn a_flood_of_notifications_changes_nothing(db: &Db) {
    let consumer = Consumer::start(db);
    eventually("it listens", async || db.connections().await >= 2).await;
    round(db).await;
    let pool = db.pg().clone();
    let sent = std::cell::Cell::new(0);

    // As it is by itself.
    let seconds = Duration::from_secs(SECONDS.into());
    let before = looks(db).await;
    tokio::time::sleep(seconds).await;
    let usual = looks(db).await - before;

    // Of queues that nobody reads: it does not even look.
    let (before, at) = (looks(db).await, Instant::now());
    let settled = consumer.memory();
    let _ = tokio::time::timeout(seconds, flood(&pool, &sent)).await;
    let more = looks(db).await - before;
    println!("{} in {:?}: {more} looks instead of {usual}", sent.get(), at.elapsed());
    // On a machine that is busy with other things they are fewer.
    assert!(sent.get() >= A_SECOND * i64::from(SECONDS) / 8, "{} sent", sent.get());
    assert!(more <= 2 * usual + 20, "{more} looks instead of {usual}");

    // Of a queue that it reads: it looks, but not as often as it is told.
    let (before, at) = (looks(db).await, Instant::now());
    // Each in a transaction of its own: two of the same in one are one.
    let forge = async || {
        for _ in 0..FORGERIES {
            sqlx::query(FORGED).execute(&pool).await.unwrap();
        }
    };
    tokio::join!(forge(), forge(), forge(), forge());
    let took = at.elapsed();
    let more = looks(db).await - before;
    println!("{} forged in {took:?}: {more} looks", 4 * FORGERIES);
    // A hundred a second, and what there is at first.
    let cap = 2 * usual + 100 + i64::try_from(took.as_millis() / 10).unwrap();
    assert!((1..=cap).contains(&more), "{more} looks of {cap}");

    let most = settled + (16 << 20);
    let memory = consumer.memory();
    println!("memory: {} KiB, then {} KiB", settled >> 10, memory >> 10);
    assert!(memory <= most, "{memory} of {most}");

    // And it works on, at its best at half the rate or more: the flood is made and sent on
    // the same two cores. Where these had nothing else to do it was 0.84 of it.
    let (mut quiet, mut flooded) = (Duration::MAX, Duration::MAX);
    for number in 0.. {
        quiet = quiet.min(round(db).await);
        tokio::select! {
            () = flood(&pool, &sent) => unreachable!(),
            took = round(db) => flooded = flooded.min(took),
        }
        let share = quiet.as_secs_f64() / flooded.as_secs_f64();
        println!(
            "{MESSAGES} messages: {quiet:?} in the quiet, {flooded:?} in the flood, {share:.2}"
        );
        if number >= 2 && share >= 0.5 {
            break;
        }
        assert!(number < 12, "{share:.2} of the rate in the quiet");
    }
    assert_eq!(db.letters().await, 0);
}
