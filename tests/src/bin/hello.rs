//! The first program of README.md, which shows it from here on.

use outbox::prelude::*;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    id: i64,
}

#[derive(Clone)]
struct Mailer;

impl Mailer {
    async fn send(&self, order: i64) -> std::io::Result<()> {
        println!("mail for order {order}");
        Ok(())
    }
}

#[subscriber("orders", retry = Exponential(initial = "1s", max_attempts = 5), timeout = "30s")]
async fn confirm(order: Order, State(mailer): State<Mailer>) -> std::io::Result<()> {
    mailer.send(order.id).await // an error asks the retry strategy
}

async fn place(pool: &sqlx::SqlitePool, order: &Order) -> anyhow::Result<()> {
    let mut tx = outbox::sqlite::begin(pool).await?; // PostgreSQL: pool.begin()
    sqlx::query("INSERT INTO orders (id) VALUES ($1)").bind(order.id).execute(&mut *tx).await?;
    outbox::publish(&mut tx, "orders", order).await?;
    tx.commit().await?; // the order and its message, or neither
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init(); // warnings and errors are tracing events
    let pool = outbox::sqlite::connect("sqlite:shop.db").await?; // made if it is missing
    outbox::migrate(&pool).await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS orders (id bigint)").execute(&pool).await?;
    place(&pool, &Order { id: 7 }).await?;
    App::sqlite(pool).dlq("outbox_dlq").state(Mailer).run().await?; // until SIGTERM or ctrl-c, then drains
    Ok(())
}
