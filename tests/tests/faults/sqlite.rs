//! Three processes publish to one file and handle what is in it, and are killed at any
//! moment, again and again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use outbox_tests::db::Db;
use outbox_tests::wait::eventually;
use outbox_tests::worker::Worker;
use tokio::process::Command;
use tokio::time::sleep;

use super::drain::Stopped;

/// Kills of each process; `OUTBOX_KILL_ROUNDS` overrides it.
const ROUNDS: usize = 20;

async fn with_tables() -> Db {
    let db = Db::sqlite().await.unwrap();
    db.exec("CREATE TABLE biz (n INTEGER PRIMARY KEY)").await;
    db.exec("CREATE TABLE done (n INTEGER NOT NULL)").await;
    db
}

fn log_of(db: &Db) -> PathBuf {
    Path::new(db.url.strip_prefix("sqlite:").unwrap()).with_extension("log")
}

fn start(db: &Db, log: &Path) -> Worker {
    let mut command = Command::new(env!("CARGO_BIN_EXE_faulty"));
    let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
    Worker::spawn({
        command.args([&db.url, "busy"]).env("RUST_LOG", "warn").stderr(log);
        command
    })
}

/// Nothing of the file is broken, and every number that was written is in one place once:
/// its message waits, was handled, or is a dead letter, which every seventh is to be. One walk
/// over each table: the writers go on meanwhile, and a check that takes longer with each of
/// their rows would never catch up with them.
async fn balances(db: &Db) {
    assert_eq!(db.texts("PRAGMA integrity_check").await, ["ok"]);
    let wrong = "SELECT count(*) FROM (
        SELECT n, sum(written) AS written, sum(done) AS done, sum(waiting) AS waiting,
            sum(dead) AS dead
        FROM (SELECT n, 1 AS written, 0 AS done, 0 AS waiting, 0 AS dead FROM biz
            UNION ALL SELECT n, 0, 1, 0, 0 FROM done
            UNION ALL SELECT CAST(payload AS int), 0, 0, 1, 0 FROM outbox
            UNION ALL SELECT CAST(payload AS int), 0, 0, 0, 1 FROM outbox_dlq)
        GROUP BY n) WHERE written <> 1 OR done + waiting + dead <> 1 OR done > 0 AND n % 7 = 0
            OR dead > 0 AND n % 7 > 0";
    assert_eq!(db.int(wrong).await, 0);
}

fn nobody_met_a_lock(log: &Path) {
    let told = std::fs::read_to_string(log).unwrap();
    let locked = told.matches("database is locked").count();
    assert_eq!(locked, 0, "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_killed_on_one_file_lose_nothing_and_break_nothing() {
    let db = with_tables().await;
    let rounds = std::env::var("OUTBOX_KILL_ROUNDS");
    let rounds = rounds.map_or(ROUNDS, |given| given.parse().expect("a number of rounds"));
    let log = log_of(&db);
    let mut workers: Vec<_> = (0..3).map(|_| start(&db, &log)).collect();
    for kill in 0..3 * rounds {
        sleep(Duration::from_millis(20 + (kill as u64 * 7919) % 230)).await;
        let next = start(&db, &log);
        let mut killed = std::mem::replace(&mut workers[kill % 3], next);
        assert_eq!(killed.ended(), None, "it ended by itself");
        killed.kill().await;
        balances(&db).await;
    }
    let written = async || db.int("SELECT count(*) FROM biz").await;
    let before = written().await;
    eventually("they go on", async || written().await > before + 20).await;
    for worker in workers {
        worker.kill().await;
    }
    let newest = db.int("SELECT coalesce(max(id), 0) FROM outbox").await;
    let mut last = start(&db, &log);
    last.begun().await;
    // It publishes more all the time.
    let left = format!("SELECT count(*) FROM outbox WHERE id <= {newest}");
    eventually("all that waited is handled", async || db.int(&left).await == 0).await;
    last.stop().await;
    balances(&db).await;
    println!("{} messages, {} kills", written().await, 3 * rounds);
    nobody_met_a_lock(&log);
    db.close().await;
}

/// Killed one after the other while the stop waits for a handler and gives back what was
/// not started: in the middle of a write, as it happens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_beside_writers_that_are_killed_ends_in_time() {
    let db = with_tables().await;
    let log = log_of(&db);
    for _ in 0..5 {
        let mut writers = [start(&db, &log), start(&db, &log)];
        for writer in &mut writers {
            writer.begun().await;
        }
        let kill = async || {
            for writer in writers {
                writer.kill().await;
            }
        };
        let stopped = Stopped::amid(&db, db.app(), async || (), kill).await;
        stopped.comes_back_on(&db).await;
        balances(&db).await;
    }
    nobody_met_a_lock(&log);
    db.close().await;
}
