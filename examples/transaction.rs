//! Publishing in the transaction of your data: both commit, or neither.

use outbox::prelude::*;
use outbox::{Outgoing, Published};
use serde::{Deserialize, Serialize};
use sqlx::SqlitePool;

mod support;

#[derive(Serialize, Deserialize)]
struct Order {
    id: i64,
}

#[subscriber("orders", max_workers = 1)]
async fn confirm(order: Order, headers: Headers) {
    let source = headers.get("source").unwrap_or("a plain publish");
    println!("handled: order {} from {source}", order.id);
}

/// Whatever fails before `commit` takes the order and its message back.
async fn place(pool: &SqlitePool, id: i64) -> anyhow::Result<()> {
    let mut tx = outbox::sqlite::begin(pool).await?; // on PostgreSQL: pool.begin()
    sqlx::query("INSERT INTO orders (id) VALUES ($1)").bind(id).execute(&mut *tx).await?;
    outbox::publish(&mut tx, "orders", &Order { id }).await?;
    anyhow::ensure!(id != 13, "order {id} cannot be paid");
    tx.commit().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let scratch = support::Scratch::new()?;
    let pool = scratch.open().await?;
    sqlx::query("CREATE TABLE orders (id INTEGER PRIMARY KEY)").execute(&pool).await?;

    place(&pool, 1).await?;
    println!("rolled back: {}", place(&pool, 13).await.unwrap_err());

    // A savepoint takes back a part; the rest of the transaction goes on.
    let mut tx = outbox::sqlite::begin(&pool).await?;
    outbox::publish(&mut tx, "orders", &Order { id: 2 }).await?;
    let mut savepoint = sqlx::Acquire::begin(&mut *tx).await?;
    outbox::publish(&mut savepoint, "orders", &Order { id: 3 }).await?;
    savepoint.rollback().await?;

    // Many messages, one statement, each with its own options.
    let publisher = Publisher::default();
    let batch = [4, 5].map(|id| {
        Outgoing::new("orders", &Order { id }).header("source", "a batch").correlation_id("job-7")
    });
    let published = publisher.publish_batch(&mut tx, batch).await?;
    let inserted = published.iter().filter(|one| matches!(one, Published::Inserted(_))).count();
    println!("the batch inserted {inserted} rows");

    // What would abort the transaction is refused before the first statement.
    let refused = outbox::publish(&mut tx, "", &Order { id: 6 }).await.unwrap_err();
    println!("refused: {refused}");
    tx.commit().await?;

    for row in publisher.pending(&mut *pool.acquire().await?, "orders", 10).await? {
        println!("pending: {}", String::from_utf8_lossy(&row.payload));
    }
    App::sqlite(pool.clone()).run_until(support::no_message_left(&pool)).await?;
    println!("left: {}", support::left(&pool).await?);
    Ok(())
}
