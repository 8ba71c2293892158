//! Making the tables while others use them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outbox::schema::{migrate_tables, validate_schema};
use outbox_tests::wait::{eventually, soon};
use sqlx::postgres::{PgPool, PgPoolOptions};

use super::migrate::PYTHON;
use crate::bench::{Postgres, SqlBench, Sqlite, Steps};
use outbox::TableNames;

/// As `b`, for a migration that has something to make, with this `lock_timeout`.
async fn impatient(b: &Postgres, after: &str) -> PgPool {
    b.execute("DELETE FROM _outbox_migrations; DROP TABLE outbox_paused").await;
    with_lock_timeout(b, after).await
}

async fn with_lock_timeout(b: &Postgres, after: &str) -> PgPool {
    let options = (*b.pool().connect_options()).clone().options([("lock_timeout", after)]);
    PgPool::connect_with(options).await.unwrap()
}

async fn waits_for(b: &Postgres, table: &str) {
    let waits = format!(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '{table}'::regclass"
    );
    eventually("it waits for the lock", async || b.number(&waits).await > 0).await;
}

/// Who wants to publish waits behind one who waits to change the table.
async fn a_migration_that_waits_for_a_writer_lets_others_go_on(b: Postgres) {
    let pool = impatient(&b, "0").await;
    b.execute("DROP INDEX outbox_due_idx").await;
    let mut writer = b.pool().begin().await.unwrap();
    sqlx::query("LOCK TABLE outbox IN ROW EXCLUSIVE MODE").execute(&mut *writer).await.unwrap();
    let (users, names) = (pool.clone(), b.names().clone());
    let migrating = tokio::spawn(async move { migrate_tables(&users, &names).await });
    waits_for(&b, "outbox").await;
    tokio::time::timeout(Duration::from_secs(20), b.put("q")).await.expect("it is published");
    assert!(!migrating.is_finished());
    writer.rollback().await.unwrap();
    migrating.await.unwrap().unwrap();
    pool.close().await;
    validate_schema(b.pool(), b.names(), true).await.unwrap();
}

async fn a_migration_that_waits_for_too_long_says_for_what(b: Postgres) {
    let pool = impatient(&b, "20ms").await;
    b.execute("DROP INDEX outbox_due_idx").await;
    let mut writer = b.pool().begin().await.unwrap();
    sqlx::query("LOCK TABLE outbox IN ROW EXCLUSIVE MODE").execute(&mut *writer).await.unwrap();
    let mut refused = String::new();
    eventually("no other migration runs", async || {
        refused = migrate_tables(&pool, b.names()).await.unwrap_err().to_string();
        // That of another test, in another schema of the database.
        !refused.contains("another migration runs")
    })
    .await;
    assert!(refused.contains("a transaction that has used a table of `outbox`"), "{refused}");
    writer.rollback().await.unwrap();
    pool.close().await;
}

/// Python's statements have no `lock_timeout`: that which buries a message locks the table of
/// letters first, and one that is planned anew reads the outbox before it writes.
async fn a_migration_holds_nothing_that_those_need_for_whom_it_waits(b: Postgres) {
    b.execute(PYTHON).await;
    let names = TableNames::new("py").unwrap().with_dlq("py_dlq").unwrap();
    let hasty = with_lock_timeout(&b, "500ms").await;
    let patient = with_lock_timeout(&b, "5s").await;
    let rows = "LOCK TABLE py IN ROW EXCLUSIVE MODE";
    let letters = "LOCK TABLE py_dlq IN ROW EXCLUSIVE MODE";
    let old = "CREATE INDEX py_due_idx ON py (queue, next_attempt_at, id)";
    for (pool, has_index, first, waits, then) in [
        (&hasty, "SELECT 1", letters, "py_dlq", rows),
        (&hasty, old, "LOCK TABLE py IN ROW SHARE MODE", "py", rows),
        // The first time on its connection it locks them the other way round.
        (&patient, "SELECT 1", rows, "py", letters),
    ] {
        b.execute("DROP TABLE IF EXISTS _py_migrations; DROP INDEX IF EXISTS py_due_idx").await;
        b.execute(has_index).await;
        let mut statement = pool.begin().await.unwrap();
        sqlx::query(first).execute(&mut *statement).await.unwrap();
        let (users, migrated) = (b.pool().clone(), names.clone());
        let migrating = tokio::spawn(async move { migrate_tables(&users, &migrated).await });
        waits_for(&b, waits).await;
        sqlx::query(then).execute(&mut *statement).await.expect("it goes on");
        statement.commit().await.unwrap();
        migrating.await.unwrap().unwrap();
        validate_schema(b.pool(), &names, true).await.unwrap();
    }
    hasty.close().await;
    patient.close().await;
}

/// Before it makes indexes of many letters it lets go of the outbox, which lacked one.
async fn tables_that_python_made_are_published_to_while_their_letters_are_waited_for(b: Postgres) {
    b.execute(PYTHON).await;
    let names = TableNames::new("py").unwrap().with_dlq("py_dlq").unwrap();
    let mut burying = b.pool().begin().await.unwrap();
    sqlx::query("LOCK TABLE py_dlq IN ROW EXCLUSIVE MODE").execute(&mut *burying).await.unwrap();
    let (users, migrated) = (b.pool().clone(), names.clone());
    let migrating = tokio::spawn(async move { migrate_tables(&users, &migrated).await });
    waits_for(&b, "py_dlq").await;
    let hasty = with_lock_timeout(&b, "500ms").await;
    let put = "INSERT INTO py (queue, payload) VALUES ('q', '')";
    sqlx::query(put).execute(&hasty).await.expect("it is published");
    assert!(!migrating.is_finished());
    burying.rollback().await.unwrap();
    migrating.await.unwrap().unwrap();
    hasty.close().await;
    validate_schema(b.pool(), &names, true).await.unwrap();
}

/// Of ten there is always one that has written and is not over.
async fn a_migration_gets_its_turn_among_writers_of_seconds(b: Postgres) {
    b.execute(PYTHON).await;
    let names = TableNames::new("py").unwrap().with_dlq("py_dlq").unwrap();
    let options = (*b.pool().connect_options()).clone();
    let pool = PgPoolOptions::new().max_connections(10).connect_lazy_with(options);
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = || {
        let (pool, is_over) = (pool.clone(), Arc::clone(&is_over));
        tokio::spawn(async move {
            while !is_over.load(Ordering::SeqCst) {
                let mut tx = pool.begin().await.unwrap();
                let put = "INSERT INTO py (queue, payload) VALUES ('q', '')";
                sqlx::query(put).execute(&mut *tx).await.expect("it is published");
                sqlx::query("SELECT pg_sleep(1 + 2 * random())").execute(&mut *tx).await.unwrap();
                tx.commit().await.unwrap();
            }
        })
    };
    let writers: Vec<_> = std::iter::repeat_with(writer).take(10).collect();
    let all = "SELECT count(*) FROM pg_locks WHERE relation = 'py'::regclass AND granted \
        AND mode = 'RowExclusiveLock'";
    eventually("they write", async || b.number(all).await == 10).await;
    let migrated = migrate_tables(b.pool(), &names);
    tokio::time::timeout(Duration::from_secs(20), migrated).await.expect("its turn").unwrap();
    is_over.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
    pool.close().await;
    validate_schema(b.pool(), &names, true).await.unwrap();
}

/// As at each start of a program: an index that somebody makes anew is his to make.
async fn a_migration_with_nothing_to_do_locks_nothing(b: Postgres) {
    b.execute("DROP INDEX outbox_due_idx").await;
    let mut writer = b.pool().begin().await.unwrap();
    sqlx::query("LOCK TABLE outbox IN ROW EXCLUSIVE MODE").execute(&mut *writer).await.unwrap();
    let migrated = migrate_tables(b.pool(), b.names());
    soon("it does not wait for him", migrated).await.unwrap();
    writer.rollback().await.unwrap();
}

/// Where the indexes of the outbox are there, it is not locked while those of many letters are
/// made.
async fn a_migration_of_the_letters_keeps_nobody_from_publishing(b: Postgres) {
    let pool = impatient(&b, "0").await;
    let mut burying = b.pool().begin().await.unwrap();
    sqlx::query("LOCK TABLE outbox_dlq IN ROW EXCLUSIVE MODE")
        .execute(&mut *burying)
        .await
        .unwrap();
    let (users, names) = (pool.clone(), b.names().clone());
    let migrating = tokio::spawn(async move { migrate_tables(&users, &names).await });
    waits_for(&b, "outbox_dlq").await;
    let hasty = with_lock_timeout(&b, "500ms").await;
    let put = "INSERT INTO outbox (queue, payload) VALUES ('q', '')";
    sqlx::query(put).execute(&hasty).await.expect("it is published");
    assert!(!migrating.is_finished());
    burying.rollback().await.unwrap();
    migrating.await.unwrap().unwrap();
    pool.close().await;
    hasty.close().await;
}

/// As beside an old process, one of whose handlers has a transaction.
async fn a_migration_with_nothing_to_do_waits_for_no_writer(b: Sqlite) {
    let hasty = hasty(&b);
    let mut writer = outbox::sqlite::begin(b.pool()).await.unwrap();
    migrate_tables(&hasty, b.names()).await.unwrap();
    sqlx::query("DELETE FROM outbox").execute(&mut *writer).await.unwrap();
    writer.commit().await.unwrap();
    hasty.close().await;
}

async fn a_migration_waits_for_a_writer_longer_than_a_statement_does(b: Sqlite) {
    b.execute("DROP TABLE outbox_paused").await;
    let hasty = hasty(&b);
    let writer = outbox::sqlite::begin(b.pool()).await.unwrap();
    let ends = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        writer.commit().await.unwrap();
    };
    let (migrated, ()) = tokio::join!(migrate_tables(&hasty, b.names()), ends);
    migrated.unwrap();
    validate_schema(b.pool(), b.names(), true).await.unwrap();
    hasty.close().await;
}

/// Whose statements wait for nobody.
fn hasty(b: &Sqlite) -> sqlx::SqlitePool {
    let options = (*b.pool().connect_options()).clone();
    sqlx::SqlitePool::connect_lazy_with(options.busy_timeout(Duration::from_millis(10)))
}

cases! {
    postgres only, "the locks are PostgreSQL's":
    a_migration_that_waits_for_a_writer_lets_others_go_on,
    a_migration_that_waits_for_too_long_says_for_what,
    a_migration_holds_nothing_that_those_need_for_whom_it_waits,
    a_migration_of_the_letters_keeps_nobody_from_publishing,
    tables_that_python_made_are_published_to_while_their_letters_are_waited_for,
    a_migration_gets_its_turn_among_writers_of_seconds,
    a_migration_with_nothing_to_do_locks_nothing,
}

mod on_sqlite {
    use super::*;

    cases! {
        sqlite only, "the lock of the file is SQLite's":
        a_migration_with_nothing_to_do_waits_for_no_writer,
        a_migration_waits_for_a_writer_longer_than_a_statement_does,
    }
}
