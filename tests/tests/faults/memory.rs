//! Rows of fifty megabytes: a program holds the one that runs, not as many as it would
//! claim of small ones.

use std::path::Path;

use outbox_tests::db::Db;
use outbox_tests::on_both;
use outbox_tests::wait::eventually;
use outbox_tests::worker::Worker;
use tokio::process::Command;

on_both!(rows_of_fifty_megabytes_are_held_one_at_a_time, a_drain_of_large_rows_ends_in_time);

const ROW: i64 = 50 << 20;
const ROWS: u32 = 5;
/// What may wait of a subscriber's rows.
const BUDGET: i64 = 32 << 20;

/// The most memory that a process took so far.
fn peak(process: u32) -> i64 {
    let status = Path::new("/proc").join(process.to_string()).join("status");
    let status = std::fs::read_to_string(status).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<i64>().unwrap() << 10
}

/// One worker, and settings that are the library's.
fn large(db: &Db) -> Worker {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faulty"));
    command.args([&db.url, "large"]).env("RUST_LOG", "error");
    Worker::spawn(command)
}

async fn insert(db: &Db, rows: u32, bytes: i64) {
    let body = if db.is_postgres() {
        format!("convert_to(repeat('7', {bytes}), 'UTF8')")
    } else {
        format!("zeroblob({bytes})")
    };
    db.exec(format!(
        "WITH RECURSIVE each(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM each WHERE n < {rows})
         INSERT INTO outbox (queue, payload) SELECT 'large', {body} FROM each"
    ))
    .await;
}

/// While a row comes, the driver holds it twice.
async fn rows_of_fifty_megabytes_are_held_one_at_a_time(db: &Db) {
    let worker = large(db);
    insert(db, 100, 1).await;
    eventually("small ones are handled", async || db.rows().await == 0).await;
    let small = peak(worker.id());
    insert(db, ROWS, ROW).await;
    eventually("all are handled", async || db.rows().await == 0).await;
    let known = peak(worker.id()) - small;
    worker.stop().await;
    // A process that knows nothing of its rows.
    insert(db, ROWS, ROW).await;
    let worker = large(db);
    eventually("all are handled", async || db.rows().await == 0).await;
    let unknown = peak(worker.id()) - small;
    worker.stop().await;
    println!("{} and {} MiB more than with small rows", known >> 20, unknown >> 20);
    let most = BUDGET + ROW * 3 / 2;
    assert!(known.max(unknown) <= most, "{known} and {unknown} bytes more than with small rows");
}

async fn a_drain_of_large_rows_ends_in_time(db: &Db) {
    let mut left = 0;
    // All may be done before a stop has come.
    for _ in 0..10 {
        insert(db, ROWS, ROW).await;
        let worker = large(db);
        eventually("one is handled", async || db.rows().await < i64::from(ROWS)).await;
        worker.stop().await;
        left = db.rows().await;
        if left > 0 {
            break;
        }
    }
    assert!(left > 0, "nothing was left to drain");
    assert_eq!((db.leased().await, db.deliveries().await), (0, 0));
    let worker = large(db);
    eventually("all are handled", async || db.rows().await == 0).await;
    worker.stop().await;
}
