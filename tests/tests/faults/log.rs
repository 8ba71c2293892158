//! A reader of a SQLite file that does not end its transaction: the write-ahead log cannot be
//! begun anew for as long as it may still look into it.

use outbox::{App, Outgoing};
use outbox_tests::db::{Db, Pool};
use outbox_tests::probe::free;
use outbox_tests::wait::eventually;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool};
use sqlx::{ConnectOptions, Connection, Executor};

use super::OFTEN;

/// What the engine leaves of a log that is no longer needed.
const CUT: u64 = 16 << 20;
/// When the doctor speaks of it.
const TOLD: u64 = 64 << 20;

/// The same file, by a pool with nothing of ours in its options.
async fn plain(db: &Db) -> Db {
    let options: SqliteConnectOptions = db.url.parse().unwrap();
    let options = options.journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePool::connect_with(options).await.unwrap();
    let mut plain = db.named(db.names.clone());
    plain.pool = Pool::Sqlite(pool);
    plain
}

/// Whether the doctor warns of the log.
async fn is_told(app: App) -> bool {
    let report = app.doctor().unwrap().examine().await.unwrap();
    report.findings.iter().any(|found| found.check == "wal")
}

/// Its size is not bounded meanwhile, which is not promised. Everything goes on, it is told,
/// and it shrinks when the reader has gone, though only the engine knows how.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_grows_behind_a_reader_that_stays_and_is_cut_when_he_has_gone() {
    let first = Db::sqlite().await.unwrap();
    let file = first.url.strip_prefix("sqlite:").unwrap().to_owned();
    let db = plain(&first).await;
    first.shut().await;
    let log = || std::fs::metadata(format!("{file}-wal")).map_or(0, |log| log.len());

    let options: SqliteConnectOptions = db.url.parse().unwrap();
    let mut reader = options.connect().await.unwrap();
    let count = "SELECT count(*) FROM outbox";
    let mut snapshot = reader.begin().await.unwrap();
    let seen: i64 = sqlx::query_scalar(count).fetch_one(&mut *snapshot).await.unwrap();

    let (subscriber, probe) = free("it", "q");
    let app = db.app().only([subscriber.min_poll(OFTEN).max_poll(OFTEN)]);
    let running = app.start().await.unwrap();
    let large = vec![b'x'; 1 << 20];
    let mut published = 0;
    while log() <= TOLD {
        db.send(Outgoing::raw("q", large.clone())).await;
        published += 1;
        assert!(published < 200, "the reader keeps nothing: {} bytes", log());
        eventually("it is handled", async || probe.finished() == published).await;
    }
    db.drained().await;
    assert!(is_told(db.app()).await);
    let again: i64 = sqlx::query_scalar(count).fetch_one(&mut *snapshot).await.unwrap();
    assert_eq!((seen, again), (0, 0), "it has kept its snapshot");

    snapshot.rollback().await.unwrap();
    reader.execute("SELECT 1").await.unwrap();
    eventually("the log is cut", async || {
        db.publish("q", 1).await;
        log() <= CUT
    })
    .await;
    db.drained().await;
    assert!(!is_told(db.app()).await);
    running.stop().await.unwrap();
    assert_eq!(db.texts("PRAGMA integrity_check").await, ["ok"]);
    println!("{published} messages of 1 MiB filled the log");
    db.shut().await;
    first.close().await;
}

#[tokio::test]
async fn a_pool_that_is_opened_here_cuts_the_log_too() {
    let db = Db::sqlite().await.unwrap();
    assert_eq!(db.int("PRAGMA journal_size_limit").await, i64::try_from(CUT).unwrap());
    db.close().await;
}
