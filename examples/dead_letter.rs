//! What fails for good is kept with its reason, and can be put back.

use std::sync::atomic::{AtomicBool, Ordering};

use outbox::dlq::{Filter, Replay};
use outbox::prelude::*;
use outbox::{Outgoing, TableNames};

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

    let names = TableNames::default().with_dlq("outbox_dlq")?;
    let app = App::sqlite(pool.clone()).names(names);
    app.clone().run_until(support::no_message_left(&pool)).await?;
    let letters = app.operator()?.dead_letters();
    let mut page = letters.list(&Filter::new(), None, 10).await?.letters;
    page.sort_by_key(|letter| (letter.queue.clone(), letter.original_id));
    for one in page {
        let why = one.note.or(one.error_kind).unwrap_or("handler not run again".into());
        println!("{}: {} ({why})", one.queue, one.failure_reason);
    }
    let problems = letters.groups(&Filter::new(), 10).await?;
    println!("{} letters, {} problems", problems.letters, problems.count);

    println!("The address is known now; the dead invoices are put back.");
    ADDRESS_KNOWN.store(true, Ordering::Relaxed);
    let report = letters.replay(&Filter::new().queue("invoices"), &Replay::new()).await?;
    println!("replayed: {}", report.replayed);
    app.run_until(support::no_message_left(&pool)).await?;
    println!("left: {}", support::left(&pool).await?);
    Ok(())
}
