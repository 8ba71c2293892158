//! Commands that only look, on a file of SQLite that they could change.

use std::path::{Path, PathBuf};

use outbox_tests::db::Db;

use crate::program::{Ran, command, ended};

outbox_tests::cases!(sqlite in sqlite:
    a_file_without_a_write_ahead_log_stays_so_and_is_told_of,
    a_file_that_is_to_be_there_is_not_made);

fn beside(db: &Db, name: &str) -> PathBuf {
    Path::new(db.url.strip_prefix("sqlite:").unwrap()).with_file_name(name)
}

async fn on(file: &Path, parameters: &str, db: &Db, args: &[&str]) -> Ran {
    let mut command = command(db, args);
    command.env("DATABASE_URL", format!("sqlite:{}{parameters}", file.display()));
    ended(command).await
}

/// As the file says it for good.
fn has_a_log(file: &Path) -> bool {
    std::fs::read(file).unwrap()[18] == 2
}

async fn a_file_without_a_write_ahead_log_stays_so_and_is_told_of(db: &Db) {
    db.publish("orders", 1).await;
    let file = beside(db, "copy.db");
    db.exec(format!("VACUUM INTO '{}'", file.display())).await;
    // Whoever reads keeps everybody from the change to a log.
    let pool = sqlx::SqlitePool::connect(&format!("sqlite:{}", file.display())).await.unwrap();
    let mut reader = pool.begin().await.unwrap();
    sqlx::query("SELECT count(*) FROM outbox").fetch_all(&mut *reader).await.unwrap();
    for parameters in ["", "?mode=ro"] {
        for args in
            [["stats"].as_slice(), &["queues"], &["peek", "orders"], &["why", "1"], &["check"]]
        {
            on(&file, parameters, db, args).await.good();
        }
    }
    let told = on(&file, "", db, &["doctor"]).await.good();
    assert!(told.contains("warning (journal): the journal mode is `delete`"), "{told}");
    assert!(!has_a_log(&file));
    reader.rollback().await.unwrap();
    pool.close().await;
    on(&file, "", db, &["migrate"]).await.good();
    assert!(has_a_log(&file), "that one changes it");
}

async fn a_file_that_is_to_be_there_is_not_made(db: &Db) {
    let file = beside(db, "none.db");
    for (name, parameters) in [("migrate", "?mode=rw"), ("stats", "?mode=rw"), ("stats", "")] {
        let ran = on(&file, parameters, db, &[name]).await;
        assert!(ran.code == 1 && ran.err.contains("none.db does not exist"), "{ran:?}");
        assert!(!file.exists(), "{name}{parameters}");
    }
    on(&file, "?mode=rwc", db, &["migrate"]).await.good();
    on(&file, "?mode=rw", db, &["migrate"]).await.good();
}
