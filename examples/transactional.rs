//! A handler in the transaction that settles its message: what it writes, what
//! it publishes and the ack commit together, or none of them does.

use outbox::Tx;
use outbox::prelude::*;
use serde::{Deserialize, Serialize};
use sqlx::{Sqlite, SqlitePool};

mod support;

#[derive(Serialize, Deserialize)]
struct Transfer {
    from: String,
    to: String,
    amount: i64,
}

#[subscriber("transfers", max_workers = 1, retry = Constant("10ms", max_attempts = 2))]
async fn book(transfer: Transfer, ctx: Context, mut tx: Tx<Sqlite>) -> anyhow::Result<()> {
    let Transfer { from, to, amount } = &transfer;
    let update = "UPDATE accounts SET balance = balance + $2 WHERE name = $1 RETURNING balance";
    let credited: i64 =
        sqlx::query_scalar(update).bind(to).bind(amount).fetch_one(&mut *tx).await?;
    outbox::publish(&mut tx, "receipts", &transfer).await?;
    println!("attempt {}: {to} would have {credited}", ctx.attempts() + 1);

    // Both are written by now; an error takes them back.
    let debited = sqlx::query_scalar(update).bind(from).bind(-amount).fetch_one(&mut *tx).await;
    let debited: i64 = debited.inspect_err(|_| println!("{from} cannot pay {amount}"))?;
    println!("{from} has {debited} left");
    Ok(())
}

#[subscriber("receipts")]
async fn receipt(Transfer { from, to, amount }: Transfer) {
    println!("receipt: {from} paid {amount} to {to}");
}

async fn order(pool: &SqlitePool, transfers: [(&str, &str, i64); 2]) -> anyhow::Result<()> {
    let mut tx = outbox::sqlite::begin(pool).await?;
    for (from, to, amount) in transfers {
        let transfer = Transfer { from: from.into(), to: to.into(), amount };
        outbox::publish(&mut tx, "transfers", &transfer).await?;
    }
    Ok(tx.commit().await?)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let scratch = support::Scratch::new()?;
    let pool = scratch.open().await?;
    let accounts = "CREATE TABLE accounts (name TEXT, balance BIGINT CHECK (balance >= 0))";
    sqlx::query(accounts).execute(&pool).await?;
    sqlx::query("INSERT INTO accounts VALUES ('ann', 100), ('bob', 0)").execute(&pool).await?;
    order(&pool, [("ann", "bob", 30), ("ann", "bob", 500)]).await?;

    // Each handler that takes a `Tx` holds a connection of this pool while it runs.
    let app = App::sqlite(pool.clone()).dlq("outbox_dlq");
    app.run_until(support::no_message_left(&pool)).await?;

    let balances: Vec<(String, i64)> =
        sqlx::query_as("SELECT name, balance FROM accounts ORDER BY name").fetch_all(&pool).await?;
    for (name, balance) in balances {
        println!("balance of {name}: {balance}");
    }
    let dead: Vec<(String, String)> =
        sqlx::query_as("SELECT failure_reason, CAST(payload AS TEXT) FROM outbox_dlq")
            .fetch_all(&pool)
            .await?;
    for (reason, transfer) in dead {
        println!("not booked, {reason}: {transfer}");
    }
    Ok(())
}
