//! Transactions that are prepared, for a commit in two phases. PostgreSQL prepares none
//! that has notified, and aborts it.

use outbox::Publisher;
use outbox_tests::backend::sleepers;
use outbox_tests::db::Db;
use outbox_tests::on_postgres;
use outbox_tests::server::Server;
use sqlx::postgres::PgListener;
use sqlx::{AssertSqlSafe, Executor};

on_postgres!(who_never_notifies_publishes_in_a_transaction_that_is_prepared);

async fn who_never_notifies_publishes_in_a_transaction_that_is_prepared(_: &Db) {
    let server = Server::start(&[("max_prepared_transactions", "2")]).unwrap();
    let db = Db::of(&server).await;
    // A consumer sleeps, on every queue.
    let mut sleeper = PgListener::connect_with(db.pg()).await.unwrap();
    let locks = sleepers(&db.names.channel());
    let locks = format!("SELECT pg_advisory_lock_shared(lock) FROM ({locks}) AS given");
    sleeper.execute(AssertSqlSafe(locks)).await.unwrap();

    let prepare = async |names, number: i64| {
        let mut tx = db.pg().begin().await.unwrap();
        Publisher::new(names).publish(&mut tx, "q", &number).await.unwrap();
        let prepared = tx.execute("PREPARE TRANSACTION 'two phases'").await;
        // It is over, here and there.
        tx.rollback().await.unwrap();
        prepared
    };
    let refused = prepare(db.names.clone(), 1).await.unwrap_err().to_string();
    assert!(refused.contains("NOTIFY"), "{refused}");
    prepare(db.names.clone().never_notify(), 2).await.unwrap();
    db.exec("COMMIT PREPARED 'two phases'").await;
    assert_eq!(db.int("SELECT count(*) FROM outbox WHERE payload = '2'").await, 1);
    assert_eq!(db.int("SELECT count(*) FROM outbox").await, 1);
}
