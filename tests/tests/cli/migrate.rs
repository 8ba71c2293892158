//! `migrate` and `check`.

use outbox_tests::db::Db;
use outbox_tests::wait::eventually;

use serde_json::json;

use crate::program::{command, ended, json, run};

async fn tables_are_made_and_checked(db: &Db) {
    for table in ["outbox", "outbox_dlq", "outbox_paused", "_outbox_migrations"] {
        db.exec(format!("DROP TABLE {table}")).await;
    }
    let bare = run(db, &["check", "--json"]).await;
    assert_eq!(bare.code, 1);
    let found = bare.json()["differences"].as_array().unwrap().clone();
    assert!(found.iter().any(|one| one["fatal"] == true), "{found:?}");
    for command in ["check", "doctor"] {
        let told = run(db, &[command]).await.ended(1);
        for table in ["outbox", "outbox_dlq", "outbox_paused"] {
            let making = format!("CREATE TABLE IF NOT EXISTS \"{table}\" (");
            assert_eq!(told.matches(&making).count(), 1, "{told}");
        }
        assert!(told.contains("`outbox migrate` makes") && !told.contains("be paused"), "{told}");
    }

    assert!(run(db, &["migrate"]).await.good().contains("outbox_dlq"));
    assert_eq!(json(db, &["migrate"]).await["migrated"]["table"], "outbox");
    let told = run(db, &["check"]).await.good();
    let place = if db.is_postgres() { "the database " } else { "the file " };
    assert!(told.starts_with(&format!("the tables outbox and outbox_dlq in {place}")), "{told}");
    let told = json(db, &["check"]).await;
    assert_eq!((&told["differences"], &told["dlq"]), (&json!([]), &"outbox_dlq".into()));
    assert!(told["database"].as_str().unwrap().starts_with(place), "{told}");
}

/// No app starts with them, and the record says that all migrations ran.
async fn tables_that_were_changed_since_are_not_told_to_be_ready(db: &Db) {
    db.exec("DROP INDEX outbox_timer_id_uq").await;
    let told = run(db, &["migrate"]).await.ended(1);
    assert!(told.contains("CREATE UNIQUE INDEX \"outbox_timer_id_uq\""), "{told}");
    let looked = told.starts_with("looked at the ") && told.contains("\nerror: ");
    assert!(looked && !told.contains("are ready"), "{told}");
    let ran = run(db, &["migrate", "--json"]).await;
    let difference = &ran.json()["differences"][0];
    assert!(ran.code == 1 && difference["fatal"] == true, "{ran:?}");
    db.exec(difference["mend"].as_str().unwrap().to_owned()).await;
    if db.is_postgres() {
        // Those are a choice.
        db.exec("ALTER TABLE outbox RESET (autovacuum_vacuum_threshold)").await;
    }
    assert!(run(db, &["migrate"]).await.good().contains("are ready in"));
    // It says so of the letters too, even if no app is to write any.
    db.exec("DROP INDEX outbox_dlq_open_idx").await;
    let mut migrate = command(db, &["migrate"]);
    migrate.env_remove("OUTBOX_DLQ_TABLE");
    let told = ended(migrate).await.ended(1);
    assert!(told.contains("\"outbox_dlq_open_idx\"") && !told.contains("are ready"), "{told}");
}

/// The lines that the driver tells are those of the server's source.
async fn what_a_migration_fails_with_is_told_in_words(db: &Db) {
    let mut migrate = command(db, &["migrate"]);
    migrate.env("OUTBOX_SCHEMA", "nosuch");
    let ran = ended(migrate).await;
    let told = "schema \"nosuch\" does not exist; `CREATE SCHEMA` makes it";
    assert!(ran.code == 1 && ran.err.contains(told), "{ran:?}");
    db.exec("CREATE VIEW taken AS SELECT 1 AS n").await;
    let mut migrate = command(db, &["migrate"]);
    migrate.env("OUTBOX_TABLE", "taken");
    let ran = ended(migrate).await;
    assert!(ran.code == 1 && !ran.err.contains(" at line "), "{ran:?}");
}

/// Before a statement looks for it.
async fn a_schema_on_sqlite_is_refused_with_the_variable_that_names_it(db: &Db) {
    for args in [&["migrate"][..], &["check"], &["stats"], &["dlq", "list"]] {
        let mut command = command(db, args);
        command.env("OUTBOX_SCHEMA", "shop");
        let ran = ended(command).await;
        assert!(ran.code == 1 && ran.err.contains("SQLite has no schema \"shop\""), "{ran:?}");
        assert!(ran.err.contains("`OUTBOX_SCHEMA`"), "{ran:?}");
    }
}

/// A pipeline may have lost its variables.
async fn what_was_not_looked_at_is_told(db: &Db) {
    let mut command = command(db, &["check"]);
    command.env_remove("OUTBOX_DLQ_TABLE").env("OUTBOX_DLQ", "outbox_dlq");
    let ran = ended(command).await;
    assert!(ran.code == 0 && ran.out.contains("`OUTBOX_DLQ_TABLE`), so none was"), "{ran:?}");
    assert!(ran.err.contains("`OUTBOX_DLQ` is set, but nothing reads it"), "{ran:?}");
    let mut command = crate::program::command(db, &["check", "--json"]);
    command.env("OUTBOX_TABEL", "outbox");
    let silent = ended(command).await;
    assert!(silent.code == 0 && silent.err.is_empty(), "for scripts: {silent:?}");
}

async fn the_sql_is_printed_and_nothing_is_done(db: &Db) {
    db.exec("DROP TABLE outbox").await;
    let sql = run(db, &["migrate", "--print"]).await.good();
    assert!(sql.contains("CREATE TABLE IF NOT EXISTS \"outbox\""), "{sql}");
    assert_eq!(json(db, &["migrate", "--print"]).await["sql"].as_str().unwrap().trim(), sql.trim());
    run(db, &["check"]).await.ended(1);
}

async fn mistakes_are_told_all_at_once(db: &Db) {
    let mut command = command(db, &["check"]);
    let output = command
        .env("DATABASE_URL", "mysql://u:hunter2@h/d")
        .env("OUTBOX_SCHEMA", "")
        .output()
        .await
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(!run(db, &["chekc"]).await.err.is_empty());
    assert!(told.contains("DATABASE_URL") && told.contains("schema name"), "{told}");
    assert!(!told.contains("hunter2") && output.stdout.is_empty(), "{told}");
    assert_eq!(run(db, &["chekc"]).await.code, 2);
}

/// One that makes the index of a large table takes long.
async fn a_migration_behind_another_one_does_not_wait_for_ever_and_says_so(db: &Db) {
    let mut other = db.pg().begin().await.unwrap();
    let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(0x006f_7574_626f_7831_i64);
    lock.execute(&mut *other).await.unwrap();
    let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let second = command(db, &["migrate"]).spawn().unwrap();
    eventually("it waits", async || db.int(waiting).await == 1).await;
    eventually("it stands aside", async || db.int(waiting).await == 0).await;
    // All its tries, in less time.
    let hasty = format!("{}?options[lock_timeout]=20ms", db.url);
    let third = command(db, &["migrate"]).env("DATABASE_URL", hasty).output().await.unwrap();
    let told = String::from_utf8(third.stderr).unwrap();
    assert!(!third.status.success() && told.contains("another migration runs"), "{told}");
    other.rollback().await.unwrap();
    assert!(second.wait_with_output().await.unwrap().status.success());
}

outbox_tests::on_postgres!(
    a_migration_behind_another_one_does_not_wait_for_ever_and_says_so,
    what_a_migration_fails_with_is_told_in_words,
);

outbox_tests::cases!(sqlite in sqlite_only:
    a_schema_on_sqlite_is_refused_with_the_variable_that_names_it
);

outbox_tests::on_both!(
    tables_are_made_and_checked,
    tables_that_were_changed_since_are_not_told_to_be_ready,
    what_was_not_looked_at_is_told,
    the_sql_is_printed_and_nothing_is_done,
    mistakes_are_told_all_at_once,
);
