//! What fails for good is kept with its reason, and can be published again.

use std::sync::atomic::{AtomicBool, Ordering};

use outbox::Outgoing;
use outbox::prelude::*;
use sqlx::SqlitePool;

mod support;

static ADDRESS_KNOWN: AtomicBool = AtomicBool::new(false);

/// The strategy gives no further delay: `retry_terminal`.
#[subscriber("invoices", retry = Constant("10ms", max_attempts = 2))]
async fn invoice(number: i64) -> Result<(), String> {
    if !ADDRESS_KNOWN.load(Ordering::Relaxed) {
        return Err(format!("invoice {number} has no address"));
    }
    println!("invoice {number} is sent");
    Ok(())
}

/// The handler knows that trying again is no use: `rejected`.
#[subscriber("refunds", retry = NoRetry)]
async fn refund(amount: i64) -> Outcome {
    if amount < 0 { Outcome::reject("the amount is negative") } else { Outcome::Ack }
}

/// Claimed more often than allowed: `max_deliveries`, and the handler is not run
/// again. This also ends a message that kills its process each time.
#[subscriber("imports", max_deliveries = 2, retry = Constant("10ms"))]
async fn import(file: &[u8]) -> anyhow::Result<()> {
    anyhow::bail!("{} bytes are no file", file.len())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let scratch = support::Scratch::new()?;
    let pool = scratch.open().await?;
    let mut tx = outbox::sqlite::begin(&pool).await?;
    outbox::publish(&mut tx, "invoices", &7).await?;
    outbox::publish(&mut tx, "refunds", &-5).await?;
    outbox::publish(&mut tx, "refunds", "five").await?; // not an i64
    Outgoing::raw("imports", vec![0xff, 0x00]).publish(&mut tx).await?;
    tx.commit().await?;

    let app = App::sqlite(pool.clone()).dlq("outbox_dlq");
    app.clone().run_until(support::no_message_left(&pool)).await?;
    let dead: Vec<(String, String, Option<String>, Option<String>)> = sqlx::query_as(
        "SELECT queue, failure_reason, error_kind, note FROM outbox_dlq ORDER BY queue, original_id",
    )
    .fetch_all(&pool)
    .await?;
    for (queue, reason, kind, note) in dead {
        let why = note.or(kind).unwrap_or("handler not run again".into());
        println!("{queue}: {reason} ({why})");
    }

    println!("The address is known now; the dead invoices are published again.");
    ADDRESS_KNOWN.store(true, Ordering::Relaxed);
    replay(&pool, "invoices").await?;
    app.run_until(support::no_message_left(&pool)).await?;
    println!("left: {}", support::left(&pool).await?);
    Ok(())
}

/// The new message and the new status commit together.
async fn replay(pool: &SqlitePool, queue: &str) -> anyhow::Result<()> {
    let mut tx = outbox::sqlite::begin(pool).await?;
    let resolve = "UPDATE outbox_dlq SET status = 'resolved', resolved_at = unixepoch() * 1000000
                   WHERE queue = $1 AND status = 'failed' RETURNING payload";
    let payloads: Vec<Vec<u8>> =
        sqlx::query_scalar(resolve).bind(queue).fetch_all(&mut *tx).await?;
    for payload in payloads {
        Outgoing::raw(queue, payload).publish(&mut tx).await?;
    }
    Ok(tx.commit().await?)
}
