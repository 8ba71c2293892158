//! The test broker lends transactions of a database in memory.

use outbox::testing::{Ending, TestBroker};
use outbox::{Error, Outgoing, Tx, subscriber};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};

use super::*;

#[subscriber("payments", retry = Constant("1s", max_attempts = 2), publish = "audit")]
async fn book(amount: i64, mut tx: Tx<sqlx::Sqlite>) -> anyhow::Result<i64> {
    sqlx::query("INSERT INTO done (n) VALUES (?)").bind(amount).execute(&mut *tx).await?;
    let receipt = Outgoing::new("receipts", &amount).delay(5 * SECOND).header("k", "v");
    receipt.publish(&mut tx).await?;
    anyhow::ensure!(amount > 0, "nothing to book");
    Ok(-amount)
}

async fn pool() -> SqlitePool {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await;
    let pool = pool.unwrap();
    sqlx::query("CREATE TABLE done (n bigint NOT NULL)").execute(&pool).await.unwrap();
    pool
}

async fn booked(pool: &SqlitePool) -> Vec<i64> {
    sqlx::query_scalar("SELECT n FROM done").fetch_all(pool).await.unwrap()
}

#[tokio::test]
async fn what_is_written_and_published_counts_with_the_ack() {
    let pool = pool().await;
    let broker = TestBroker::with([book::subscriber()]).transactions(pool.clone());
    broker.publish("payments", &7).await.unwrap();
    assert_eq!(broker.calls("book")[0].ending, Ending::Acked);
    assert_eq!(booked(&pool).await, [7]);
    let rows = broker.rows();
    let queues: Vec<_> = rows.iter().map(|row| (&*row.queue, &row.payload[..])).collect();
    assert_eq!(queues, [("audit", &b"-7"[..]), ("receipts", b"7")]);
    assert_eq!(rows[1].headers().unwrap().get("k"), Some("v"));
    let wait = rows[1].next_attempt_at.duration_since(broker.now()).unwrap();
    assert!(wait > 4 * SECOND && wait <= 5 * SECOND, "{wait:?}");
}

#[tokio::test]
async fn an_error_leaves_neither_a_write_nor_a_message() {
    let pool = pool().await;
    let broker = TestBroker::with([book::subscriber()]).transactions(pool.clone());
    broker.publish("payments", &-7).await.unwrap();
    assert_eq!(broker.calls("book")[0].ending, Ending::Retried(SECOND));
    broker.run_until_idle().await;
    assert!(booked(&pool).await.is_empty() && broker.rows().is_empty());
    assert_eq!(broker.dlq_rows().len(), 1);
}

#[tokio::test]
async fn without_a_database_the_broker_says_how_to_give_one() {
    let broker = TestBroker::with([book::subscriber()]);
    let Err(Error::Launch(reasons)) = broker.publish("payments", &7).await else {
        panic!("it was published")
    };
    assert!(reasons[0].contains(".transactions(pool)"), "{reasons:?}");
}

#[tokio::test]
async fn a_crash_leaves_neither_a_write_nor_a_message() {
    let pool = pool().await;
    let broker = TestBroker::with([book::subscriber()]).transactions(pool.clone());
    broker.crash_next(1);
    broker.publish("payments", &7).await.unwrap();
    assert_eq!(broker.calls("book")[0].ending, Ending::Unwritten);
    assert!(booked(&pool).await.is_empty());
    assert_eq!(broker.rows().len(), 1, "the message");
    broker.redeliver().await;
    assert_eq!(broker.calls("book")[1].ending, Ending::Acked);
    assert_eq!((booked(&pool).await, broker.rows().len()), (vec![7], 2));
}
