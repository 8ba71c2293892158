//! Anybody who may connect may notify. Whoever does so without end, with whatever words,
//! makes a consumer look no more often than it does anyway, and nothing else.

use std::cell::Cell;
use std::process::Stdio;
use std::time::{Duration, Instant};

use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::process::memory;
use outbox_tests::wait::eventually;
use sqlx::postgres::PgPool;
use tokio::process::{Child, Command};

on_postgres!(
    a_flood_of_notifications_makes_it_look_no_more_often,
    a_flood_of_notifications_changes_nothing,
);

/// Of 7,999 bytes each, which is as long as they may be.
const FLOOD: &str = "SELECT count(pg_notify($1, md5(random()::text || n) || pad)) \
    FROM generate_series(1, $2) AS n, (SELECT repeat('x', 7967) AS pad OFFSET 0) AS padding";
/// The consumer's, and one to which nobody listens.
const HEARD: &str = "outbox_outbox";
const UNHEARD: &str = "elsewhere";
/// Of a queue that somebody reads.
const FORGED: &str = "SELECT pg_notify('outbox_outbox', 'orders')";
/// So many, on each of four connections.
const FORGERIES: usize = 1_000;
const A_SECOND: i64 = 10_000;
/// Of them, or of those that nobody hears, where the machine makes fewer.
const SENT: f64 = 0.7;
/// How long it is flooded while it has nothing to do, and elsewhere while it has.
const FLOODED: Duration = Duration::from_secs(10);
/// In a round.
const MESSAGES: i64 = 2_000;
/// Of each kind, at least: a few would tell of the machine as much as of the consumer.
const ROUNDS: usize = 9;
/// Of the rate while somebody else is flooded.
const KEPT: f64 = 0.8;

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

    /// The most bytes of memory that it ever had.
    fn memory(&self) -> u64 {
        memory(self.0.id().unwrap(), "VmHWM").unwrap() << 10
    }
}

/// Counts claims, also those that find nothing.
const COUNTED: &str = "CREATE SEQUENCE looks;
    CREATE FUNCTION looked() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN PERFORM nextval('looks'); RETURN NULL; END $$;
    CREATE TRIGGER looked BEFORE UPDATE ON outbox EXECUTE FUNCTION looked()";

/// How often the queue was claimed from, with what it has still heard of.
async fn looks(db: &Db) -> i64 {
    tokio::time::sleep(Duration::from_secs(2)).await;
    db.int("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM looks").await
}

/// Notifies so often a second, for as long as it is polled; says how often it was.
async fn flood(pool: &PgPool, channel: &str, sent: &Cell<i64>) {
    // Those that come late are made up for.
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    loop {
        tick.tick().await;
        let some = A_SECOND / 20;
        sqlx::query(FLOOD).bind(channel).bind(some).execute(pool).await.unwrap();
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

/// A round while a channel is flooded.
async fn flooded_round(db: &Db, channel: &str, sent: &Cell<i64>) -> Duration {
    tokio::select! {
        () = flood(db.pg(), channel, sent) => unreachable!(),
        took = round(db) => took,
    }
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// And takes no more memory than this.
const ROOM: u64 = 16 << 20;

/// One that has something behind it.
async fn settled(db: &Db) -> Consumer {
    let consumer = Consumer::start(db);
    eventually("it listens", async || db.connections().await >= 2).await;
    round(db).await;
    consumer
}

impl Consumer {
    fn took_no_more_than(&self, before: u64) {
        let memory = self.memory();
        println!("memory: {} KiB, then {} KiB", before >> 10, memory >> 10);
        assert!(memory <= before + ROOM, "{memory}, and {before} before");
    }
}

async fn a_flood_of_notifications_makes_it_look_no_more_often(db: &Db) {
    let consumer = settled(db).await;
    db.exec(COUNTED).await;
    let (pool, sent) = (db.pg().clone(), Cell::new(0));

    // Of queues that nobody reads: it does not even look.
    let (before, at) = (looks(db).await, Instant::now());
    let memory = consumer.memory();
    let _ = tokio::time::timeout(FLOODED, flood(&pool, HEARD, &sent)).await;
    let after = looks(db).await;
    let more = after - before;
    println!("{} in {:?}: {more} looks", sent.get(), at.elapsed());
    assert!(sent.get() > A_SECOND, "{} sent", sent.get());
    // By itself it looks every ten seconds.
    assert!(more <= 20, "{more} looks");

    // Of a queue that it reads: it looks, but not as often as it is told.
    let at = Instant::now();
    // Each in a transaction of its own: two of the same in one are one.
    let forge = async || {
        for _ in 0..FORGERIES {
            sqlx::query(FORGED).execute(&pool).await.unwrap();
        }
    };
    tokio::join!(forge(), forge(), forge(), forge());
    let took = at.elapsed();
    let more = looks(db).await - after;
    println!("{} forged in {took:?}: {more} looks", 4 * FORGERIES);
    // A hundred a second, and what there is at first.
    let cap = 120 + i64::try_from(took.as_millis() / 10).unwrap();
    assert!((1..=cap).contains(&more), "{more} looks of {cap}");
    consumer.took_no_more_than(memory);
}

/// Making the flood takes what the consumer does not get: so its rate is compared with that beside
/// a flood of others.
async fn a_flood_of_notifications_changes_nothing(db: &Db) {
    let consumer = settled(db).await;
    let memory = consumer.memory();
    let (heard, unheard) = (Cell::new(0), Cell::new(0));
    let (mut beside, mut within) = (Vec::new(), Vec::new());
    while within.len() < ROUNDS || within.iter().sum::<Duration>() < FLOODED {
        beside.push(flooded_round(db, UNHEARD, &unheard).await);
        within.push(flooded_round(db, HEARD, &heard).await);
    }
    let a_second = |sent: i64, time: Duration| sent as f64 / time.as_secs_f64();
    let rate = a_second(heard.get(), within.iter().sum());
    let possible = a_second(unheard.get(), beside.iter().sum());
    let possible = possible.min(a_second(A_SECOND, Duration::from_secs(1)));
    println!("{} sent, {rate:.0} a second of {possible:.0}", heard.get());
    assert!(rate >= SENT * possible, "{rate:.0} of {possible:.0} a second");

    let (beside, within) = (median(&mut beside), median(&mut within));
    let share = beside.as_secs_f64() / within.as_secs_f64();
    println!("{MESSAGES} messages: {within:?} in the flood, {beside:?} beside it, {share:.2}");
    assert!(share >= KEPT, "{share:.2} of the rate beside the flood");
    consumer.took_no_more_than(memory);
    assert_eq!(db.letters().await, 0);
}
