//! A program is replaced by its next release, process by process, while the tables get other
//! columns.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use outbox::{Outgoing, Publisher};
use outbox_tests::backend::{require, unique};
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::server::Server;
use outbox_tests::wait::{eventually, soon};
use outbox_tests::worker::Worker;
use sqlx::postgres::PgPool;
use tokio::process::Command;
use tokio::time::sleep;

use super::OFTEN;

on_postgres!(a_migration_that_deadlocks_with_who_changes_its_tables_is_made_again);

const QUEUES: [&str; 4] = ["kept", "changed", "dropped", "added"];

/// As deploys do it: one that every row has at once, one without a value, one for which all
/// rows are written anew, and one that nobody may leave out.
const COLUMNS: [&str; 4] = [
    "text DEFAULT 'x'",
    "integer",
    "timestamptz DEFAULT clock_timestamp()",
    "bigint NOT NULL DEFAULT 7",
];

/// It is at work when this returns: one that has only been started, a signal kills. Its
/// complaints go to the log.
async fn start(db: &Db, release: &str, log: &Path) -> Worker {
    let mut command = Command::new(env!("CARGO_BIN_EXE_release"));
    let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
    command.args([&db.url, release]).stderr(log);
    let mut worker = Worker::spawn(command);
    worker.begun().await;
    worker
}

/// Writes each number and publishes it to every queue, until told to stop. Returns how many
/// it wrote.
async fn produce(pool: PgPool, stop: Arc<AtomicBool>) -> i64 {
    let mut n = 0;
    while !stop.load(Ordering::SeqCst) {
        n += 1;
        let mut tx = pool.begin().await.unwrap();
        Publisher::default().publish(&mut tx, QUEUES[0], &n).await.unwrap();
        let others = QUEUES[1..].iter().map(|queue| Outgoing::new(*queue, &n));
        Publisher::default().publish_batch(&mut tx, others).await.unwrap();
        tx.commit().await.unwrap();
        sleep(OFTEN / 20).await;
    }
    n
}

/// So many messages come between two changes, so that statements of every kind are prepared.
const EACH: i64 = 60;

/// The tables change, and each queue goes on: all that was there before is handled.
async fn change(db: &Db, round: usize, readers: &[&str]) {
    let newest = async || db.int("SELECT coalesce(max(id), 0) FROM outbox").await;
    for (at, column) in COLUMNS.iter().enumerate() {
        let before = newest().await;
        eventually("messages come", async || newest().await > before + EACH).await;
        for table in ["outbox", "outbox_dlq"] {
            db.exec(format!("ALTER TABLE {table} ADD COLUMN more_{round}_{at} {column}")).await;
        }
    }
    let last = newest().await;
    let queues = readers.iter().map(|queue| format!("'{queue}'")).collect::<Vec<_>>().join(", ");
    let left = format!("SELECT count(*) FROM outbox WHERE id <= {last} AND queue IN ({queues})");
    eventually("what was there is handled", async || db.int(&left).await == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_replaces_another_while_columns_are_added_loses_and_doubles_nothing() {
    if !require("postgres") {
        return;
    }
    // Apps wait for a lock for as long as they ever do: who changes a table has it for a while.
    let server = Server::start(&[("fsync", "off"), ("deadlock_timeout", "10s")]).unwrap();
    let db = Db::of(&server).await;
    db.exec("CREATE TABLE done (n bigint, queue text, release text)").await;
    db.exec("CREATE INDEX ON done (queue, n)").await;
    let log = server.folder.join(unique("releases"));
    let stop = Arc::new(AtomicBool::new(false));
    let producer = tokio::spawn(produce(db.pg().clone(), Arc::clone(&stop)));

    let first = start(&db, "old", &log).await;
    let second = start(&db, "old", &log).await;
    change(&db, 0, &["kept", "changed", "dropped"]).await;
    let unknown = "SELECT count(*) FROM outbox WHERE queue = 'added'
        AND deliveries_count + attempts_count = 0 AND acquired_token IS NULL";
    assert!(db.int(unknown).await > 0, "what the old release does not know waits for the new one");
    let third = start(&db, "new", &log).await;
    change(&db, 1, &QUEUES).await;
    first.stop().await;
    change(&db, 2, &QUEUES).await;
    let fourth = start(&db, "new", &log).await;
    second.stop().await;
    change(&db, 3, &["kept", "changed", "added"]).await;
    stop.store(true, Ordering::SeqCst);
    let written = producer.await.unwrap();
    let left = "SELECT count(*) FROM outbox WHERE queue <> 'dropped'";
    eventually("what the new release reads is handled", async || db.int(left).await == 0).await;
    for worker in [third, fourth] {
        worker.stop().await;
    }
    let waits = "SELECT count(*) FROM outbox WHERE acquired_token IS NULL";
    let waiting = db.int(waits).await;
    assert!(waiting > 0 && waiting == db.rows().await, "nobody reads what was dropped, or has it");
    let last = start(&db, "old", &log).await;
    db.drained().await;
    last.stop().await;

    let wrong = format!(
        "SELECT count(*) FROM generate_series(1, {written}) AS n
         CROSS JOIN unnest('{{{}}}'::text[]) AS queue
         WHERE (SELECT count(*) FROM done WHERE done.n = n.n AND done.queue = queue.queue)
                <> (n % 11 > 0)::int
            OR (SELECT count(*) FROM outbox_dlq AS dead WHERE dead.queue = queue.queue
                AND convert_from(payload, 'UTF8') = n::text AND failure_reason = 'rejected')
                <> (n % 11 = 0)::int",
        QUEUES.join(",")
    );
    assert_eq!(db.int(wrong).await, 0, "each is done once, or dead once if it is to be");
    assert_eq!(db.letters().await, written / 11 * 4);
    for (queue, releases) in [("kept", "new old"), ("changed", "new old"), ("added", "new")] {
        let by = "SELECT string_agg(DISTINCT release, ' ' ORDER BY release) FROM done";
        let by = db.texts(format!("{by} WHERE queue = '{queue}'")).await;
        assert_eq!(by, [releases], "{queue}");
    }
    println!("{written} numbers");
    for log in [std::fs::read_to_string(&log).unwrap(), server.log().unwrap()] {
        let complains = |line: &&str| line.contains("ERROR") && !line.contains("\"rejected\"");
        let complaints: Vec<_> = log.lines().filter(complains).collect();
        assert!(complaints.is_empty(), "{complaints:?}");
    }
    db.close().await;
}

/// Everything is made once more, as on tables of another origin.
async fn a_migration_that_deadlocks_with_who_changes_its_tables_is_made_again(db: &Db) {
    db.publish("q", 1).await;
    const MADE: &str = "SELECT count(*) FROM _outbox_migrations";
    let made = db.int(MADE).await;
    db.exec("DELETE FROM _outbox_migrations").await;
    db.exec("ALTER TABLE outbox RESET (fillfactor, autovacuum_vacuum_threshold)").await;
    let does = async |tx: &mut sqlx::PgConnection, sql: &'static str| {
        sqlx::raw_sql(sql).execute(tx).await.unwrap();
    };
    // Whoever waits longer than the other is not the one that the server ends.
    let mut change = db.pg().begin().await.unwrap();
    does(&mut change, "SET LOCAL deadlock_timeout = '1min'").await;
    does(&mut change, "LOCK TABLE outbox_dlq IN ROW SHARE MODE").await;
    let others = async {
        let waits = "SELECT count(*) FROM pg_locks
            WHERE NOT granted AND relation = 'outbox_dlq'::regclass";
        eventually("the migration waits", async || db.int(waits).await == 1).await;
        does(&mut change, "LOCK TABLE _outbox_migrations IN ACCESS EXCLUSIVE MODE").await;
        change.commit().await.unwrap();
    };
    soon("both are done", async { tokio::join!(db.migrate(), others) }).await;
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    eventually("they were in each other's way", async || db.int(deadlocks).await == 1).await;
    assert_eq!((db.int(MADE).await, db.rows().await), (made, 1));
}
