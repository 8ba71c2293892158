//! A SQLite file in a bad state.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use outbox::App;
use outbox::ops::doctor::Severity;
use outbox_tests::db::Db;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool};

use crate::{by, examine, limits, of, one};

outbox_tests::cases!(sqlite in sqlite:
    a_damaged_file_is_an_error,
    another_journal_mode_is_told,
    a_writer_that_does_not_wait_is_told,
    a_file_that_cannot_be_written_is_an_error,
    a_file_that_another_writer_keeps_is_told,
    a_full_disk_is_no_other_writer,
    a_file_that_others_may_open_is_told,
    a_write_ahead_log_that_grows_is_told,
    the_log_of_a_file_behind_a_link_is_found,
    there_is_one_clock);

fn path(db: &Db) -> PathBuf {
    db.url.strip_prefix("sqlite:").unwrap().into()
}

fn app(db: &Db, options: SqliteConnectOptions) -> App {
    App::sqlite(SqlitePool::connect_lazy_with(options)).names(db.names.clone()).only([])
}

fn options(db: &Db) -> SqliteConnectOptions {
    SqliteConnectOptions::from_str(&db.url).unwrap()
}

fn chmod(db: &Db, mode: u32) {
    std::fs::set_permissions(path(db), std::fs::Permissions::from_mode(mode)).unwrap();
}

async fn a_damaged_file_is_an_error(db: &Db) {
    db.send_all((0..500).map(|n| outbox::Outgoing::new("orders", &n))).await;
    db.exec("PRAGMA wal_checkpoint(TRUNCATE)").await;
    let copy = path(db).with_file_name("copy.db");
    let mut bytes = std::fs::read(path(db)).unwrap();
    // The pages behind the first, which has the schema.
    let middle = bytes.len() / 2;
    bytes[middle..middle + 8192].fill(0xa5);
    std::fs::write(&copy, bytes).unwrap();
    let report = examine(app(db, options(db).filename(&copy)), limits()).await;
    one(&report, "integrity", Severity::Error);
    assert_eq!(by(&of(db).await, "integrity").len(), 0);
}

async fn another_journal_mode_is_told(db: &Db) {
    let copy = path(db).with_file_name("copy.db");
    db.exec(format!("VACUUM INTO '{}'", copy.display())).await;
    let options = options(db).filename(&copy).journal_mode(SqliteJournalMode::Delete);
    let report = examine(app(db, options), limits()).await;
    assert!(one(&report, "journal", Severity::Warning).what.contains("`delete`"));
    assert_eq!(by(&of(db).await, "journal").len(), 0);
}

async fn a_writer_that_does_not_wait_is_told(db: &Db) {
    let impatient = options(db).busy_timeout(Duration::from_millis(10));
    let report = examine(app(db, impatient), limits()).await;
    assert!(one(&report, "busy", Severity::Warning).what.contains("10 ms"));
    assert_eq!(by(&of(db).await, "busy").len(), 0);
}

async fn a_file_that_cannot_be_written_is_an_error(db: &Db) {
    let report = examine(app(db, options(db).read_only(true)), limits()).await;
    assert!(one(&report, "writing", Severity::Error).what.contains("readonly"));
    assert_eq!(by(&of(db).await, "writing").len(), 0);
}

async fn a_file_that_another_writer_keeps_is_told(db: &Db) {
    let lock = db.lock().await;
    let impatient = options(db).busy_timeout(Duration::from_millis(10));
    let report = examine(app(db, impatient), limits()).await;
    assert!(one(&report, "writing", Severity::Warning).what.contains("locked"));
    lock.release().await;
}

async fn a_full_disk_is_no_other_writer(db: &Db) {
    let pages = db.int("SELECT page_count FROM pragma_page_count").await;
    let full = options(db).pragma("max_page_count", pages.to_string());
    let report = examine(app(db, full), limits()).await;
    assert!(one(&report, "writing", Severity::Error).what.contains("full"));
}

async fn a_file_that_others_may_open_is_told(db: &Db) {
    chmod(db, 0o600);
    assert_eq!(by(&of(db).await, "file").len(), 0);
    chmod(db, 0o644);
    one(&of(db).await, "file", Severity::Note);
    chmod(db, 0o666);
    one(&of(db).await, "file", Severity::Warning);
}

async fn a_write_ahead_log_that_grows_is_told(db: &Db) {
    db.publish("orders", 1).await;
    let mut limits = limits();
    limits.wal_bytes = 1000;
    let report = examine(db.app(), limits).await;
    one(&report, "wal", Severity::Warning);
    assert_eq!(by(&of(db).await, "wal").len(), 0);
}

async fn the_log_of_a_file_behind_a_link_is_found(db: &Db) {
    db.publish("orders", 1).await;
    let link = path(db).with_file_name("link.db");
    std::os::unix::fs::symlink(path(db), &link).unwrap();
    let mut limits = limits();
    limits.wal_bytes = 1000;
    let report = examine(app(db, options(db).filename(&link)), limits).await;
    one(&report, "wal", Severity::Warning);
}

async fn there_is_one_clock(db: &Db) {
    let report = of(db).await;
    let clock = report.checks.iter().find(|check| check.name == "clock").unwrap();
    assert!(clock.said.as_deref().unwrap().contains("there is no difference"));
}
