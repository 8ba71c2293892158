//! Somebody who writes rows in the order in which nobody else does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::{Context, Outgoing, Subscriber};
use outbox_tests::capture;
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::wait::eventually;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use tokio::time::{Instant, sleep};

on_postgres!(who_writes_rows_the_other_way_round_makes_deadlocks_and_no_message_is_lost);

const FOR: Duration = Duration::from_secs(8);
const PAUSE: Duration = Duration::from_millis(20);
/// Of the rows that are leased, the youngest first.
const LEASED: &str = "SELECT id FROM outbox WHERE acquired_token IS NOT NULL
    ORDER BY id DESC LIMIT 40";

/// Changes rows, and keeps that; then deletes some, and takes it back.
async fn admin(db: &Db, end: Instant) -> usize {
    let mut admin = PgConnection::connect(&db.url).await.unwrap();
    // It is never the one that gives way: the app is.
    admin.execute("SET deadlock_timeout = '1min'").await.unwrap();
    let mut written = 0;
    while Instant::now() < end {
        for (write, how) in [
            ("UPDATE outbox SET headers = headers WHERE id =", "COMMIT"),
            ("DELETE FROM outbox WHERE id =", "ROLLBACK"),
        ] {
            let ids: Vec<i64> = sqlx::query_scalar(LEASED).fetch_all(&mut admin).await.unwrap();
            admin.execute("BEGIN").await.unwrap();
            for id in ids {
                let done = admin.execute(AssertSqlSafe(format!("{write} {id}"))).await.unwrap();
                written += usize::from(done.rows_affected() == 1);
            }
            admin.execute(how).await.unwrap();
            sleep(PAUSE).await;
        }
    }
    written
}

type Runs = Arc<Mutex<BTreeMap<i64, usize>>>;

fn counting(runs: &Runs) -> Subscriber {
    let runs = Arc::clone(runs);
    let count = move |ctx: Context| {
        let n: i64 = ctx.decode().unwrap();
        *runs.lock().unwrap().entry(n).or_default() += 1;
        sleep(Duration::from_millis(20 + n.unsigned_abs() % 41))
    };
    Subscriber::new("counting", "q", count).max_workers(40).fetch_batch(100)
}

async fn who_writes_rows_the_other_way_round_makes_deadlocks_and_no_message_is_lost(db: &Db) {
    capture::start();
    let name = db.pg().connect_options().get_database().unwrap().to_owned();
    db.exec(format!("ALTER DATABASE {name} SET deadlock_timeout = '10ms'")).await;
    let runs = Runs::default();
    let running = db.app().only([counting(&runs)]).start().await.unwrap();
    let end = Instant::now() + FOR;
    let produce = async {
        let mut next = 0;
        while Instant::now() < end {
            db.send_all((next..next + 80).map(|n| Outgoing::new("q", &n))).await;
            next += 80;
            sleep(5 * PAUSE).await;
        }
        next
    };
    let (sent, written) = tokio::join!(produce, admin(db, end));
    db.drained().await;
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    eventually("there were some", async || db.int(deadlocks).await > 0).await;
    let retried = capture::lines().into_iter().filter(|line| {
        line.get("message").is_some_and(|text| text.contains("settling failed; trying again"))
            && line.get("error").is_some_and(|text| text.contains("deadlock detected"))
    });
    let (deadlocks, retried) = (db.int(deadlocks).await, retried.count());
    println!("{sent} messages, {written} writes, {deadlocks} deadlocks, {retried} tried again");
    assert!(written > 0 && retried > 0, "{written} writes, {retried} settles of the app gave way");
    let runs = std::mem::take(&mut *runs.lock().unwrap());
    assert_eq!(runs.keys().copied().collect::<Vec<_>>(), (0..sent).collect::<Vec<_>>());
    assert!(runs.values().all(|times| *times == 1), "each was handled once: {runs:?}");
    assert_eq!(db.letters().await, 0);
    running.stop().await.unwrap();
}
