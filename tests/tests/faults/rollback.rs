//! SQLite rolls a transaction back by itself: the disk is full, or a trigger says so. sqlx goes
//! on counting it, and would begin none on that connection any more.

use outbox::retry::NoRetry;
use outbox::{Publisher, Tx, sqlite, subscriber};
use outbox_tests::db::{Db, Pool};
use outbox_tests::probe;
use outbox_tests::wait::eventually;
use sqlx::Connection as _;

async fn on_a_file() -> (Db, sqlx::SqlitePool) {
    let db = Db::sqlite().await.unwrap();
    let Pool::Sqlite(pool) = &db.pool else { unreachable!() };
    let pool = pool.clone();
    (db, pool)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_sqlite_ended_is_no_hindrance_to_the_next_ones() {
    let (db, pool) = on_a_file().await;
    let row = "INSERT OR ROLLBACK INTO outbox (id, queue, payload) VALUES (1, 'q', x'31')";
    db.exec(row).await;
    // As many as the pool has connections, and one more.
    let broken = pool.options().get_max_connections() + 1;
    for n in 0..broken {
        let mut tx = sqlite::begin(&pool).await.unwrap();
        sqlx::query(row).execute(&mut *tx).await.unwrap_err();
        drop(tx);
        let mut tx = sqlite::begin(&pool).await.unwrap();
        Publisher::new(db.names.clone()).publish(&mut tx, "q", &n).await.unwrap();
        tx.commit().await.unwrap();
    }
    outbox::migrate(&pool).await.unwrap();
    assert_eq!(db.rows().await, 1 + i64::from(broken));
    db.close().await;
}

#[subscriber("ended", retry = NoRetry)]
async fn ended(nested: bool, mut tx: Tx<sqlx::Sqlite>) -> Result<(), sqlx::Error> {
    const TWICE: &str = "INSERT INTO once VALUES (1), (1)";
    if nested {
        let mut inner = tx.begin().await?;
        return sqlx::query(TWICE).execute(&mut *inner).await.map(drop);
    }
    sqlx::query(TWICE).execute(&mut *tx).await.map(drop)
}

/// Whoever begins one on such a connection, other than by `sqlite::begin`, would get a savepoint in
/// a transaction that nobody ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_sqlite_ended_under_a_handler_leaves_its_connection_as_it_was() {
    let (db, pool) = on_a_file().await;
    db.exec("CREATE TABLE once (n UNIQUE ON CONFLICT ROLLBACK)").await;
    let running = db.app().only([ended::subscriber()]).start().await.unwrap();
    for nested in [false, true] {
        db.send(outbox::Outgoing::new("ended", &nested)).await;
        eventually("it is dead", async || db.rows().await == 0).await;
    }
    running.stop().await.unwrap();
    let mut all = Vec::new();
    while let Some(free) = pool.try_acquire() {
        assert!(!free.is_in_transaction());
        all.push(free);
    }
    assert!(!all.is_empty() && db.letters().await == 2);
    drop(all);
    db.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_that_sqlite_rolled_back_keeps_no_other_from_being_written() {
    let (db, _) = on_a_file().await;
    db.exec(
        "CREATE TRIGGER full BEFORE INSERT ON outbox_dlq
         BEGIN SELECT RAISE(ROLLBACK, 'the disk is full'); END",
    )
    .await;
    let (failing, failed) = probe::with_result("failing", "failing", |_| Err("no".into()));
    let (fine, handled) = probe::free("fine", "fine");
    let failing = failing.retry(NoRetry);
    let running = db.app().only([failing, fine]).start().await.unwrap();
    db.publish("failing", 1).await;
    failed.start().await;
    failed.let_end(1);
    eventually("it has ended", async || failed.finished() == 1).await;
    for n in 0..3 {
        db.publish("fine", n).await;
        handled.start().await;
        eventually("it is acked", async || db.rows().await == 1).await;
    }
    assert_eq!(db.letters().await, 0);
    running.stop().await.unwrap();
    db.close().await;
}

/// A process claims for all its subscribers in one call, each in a transaction of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_sqlite_refuses_keeps_no_rows_of_another() {
    let (db, _) = on_a_file().await;
    db.exec(
        "CREATE TRIGGER refused BEFORE UPDATE ON outbox WHEN NEW.queue = 'refused'
         BEGIN SELECT RAISE(ABORT, 'not this one'); END",
    )
    .await;
    db.publish("fine", 1).await;
    db.publish("refused", 2).await;
    let (fine, handled) = probe::free("fine", "fine");
    let (refused, started) = probe::free("refused", "refused");
    let running = db.app().only([fine, refused]).start().await.unwrap();
    // Long before its lease would have run out.
    handled.start().await;
    eventually("it is acked", async || db.rows().await == 1).await;
    assert!(started.more().await.is_empty());
    running.stop().await.unwrap();
    db.close().await;
}
