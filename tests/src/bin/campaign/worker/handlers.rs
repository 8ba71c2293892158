//! The subscribers: single messages and batches, on the runtime and on threads, in
//! transactions, returning messages, deadly, rare.

use std::time::Duration;

use anyhow::Result;
use outbox::{Batch, BatchOutcome, Context, Item, Outcome, Subscriber, Tx, subscriber};

use super::acts::{begun, end, ended, panics, play};
use crate::workload::{Act, Message};

#[subscriber(
    "single",
    lease_ttl = "2s",
    max_poll = "1s",
    retry = Constant("100ms", max_attempts = 3)
)]
async fn single(message: Message, context: Context) -> Result<Outcome> {
    play(&message, &context).await;
    end(&message, &context)
}

#[subscriber(
    "batch",
    batch = 6,
    batch_wait = "50ms",
    max_workers = 4,
    lease_ttl = "2s",
    max_poll = "1s",
    retry = Constant("100ms", max_attempts = 3)
)]
async fn batch(batch: Batch<Message>) -> BatchOutcome {
    let mut longest = 0;
    for Item { message, context, .. } in &batch {
        begun(context, &message.key);
        longest = longest.max(message.ms);
    }
    tokio::time::sleep(Duration::from_millis(longest)).await;
    if batch.iter().any(|item| panics(&item.message, &item.context)) {
        batch.iter().for_each(|item| ended(&item.context, "panic"));
        panic!("as it was told")
    }
    let mut outcome = BatchOutcome::default();
    for Item { message, context, .. } in &batch {
        outcome.set(context, end(message, context));
    }
    outcome
}

/// On a blocking thread, which nobody can stop.
#[subscriber(
    "plain",
    max_workers = 4,
    lease_ttl = "2s",
    max_poll = "1s",
    retry = Constant("100ms", max_attempts = 3)
)]
fn plain(message: Message, context: Context) -> Result<Outcome> {
    begun(&context, &message.key);
    std::thread::sleep(Duration::from_millis(message.ms));
    end(&message, &context)
}

// Each time it is formatted the attribute moves further to the right.
#[rustfmt::skip]
macro_rules! transactional {
    ($name:ident, $database:ty, $insert:literal) => {
        #[subscriber(
            "tx",
            max_workers = 3,
            lease_ttl = "2s",
            max_poll = "1s",
            retry = Constant("100ms", max_attempts = 3)
        )]
        async fn $name(
            message: Message,
            context: Context,
            mut tx: Tx<$database>,
        ) -> Result<Outcome> {
            play(&message, &context).await;
            sqlx::query($insert).bind(&message.key).execute(&mut *tx).await.inspect_err(|_| {
                ended(&context, "fail");
            })?;
            drop(tx);
            end(&message, &context)
        }
    };
}

transactional!(on_postgres, sqlx::Postgres, "INSERT INTO effect (key) VALUES ($1)");
transactional!(on_sqlite, sqlx::Sqlite, "INSERT INTO effect (key) VALUES (?)");

#[subscriber(
    "returns",
    publish = "receipts",
    lease_ttl = "2s",
    max_poll = "1s",
    retry = Constant("100ms", max_attempts = 3)
)]
async fn returns(message: Message, context: Context) -> Result<Message> {
    play(&message, &context).await;
    match message.act {
        // What is returned is published, so it cannot say these.
        Act::Reject | Act::Snooze => ended(&context, "ok"),
        _ => drop(end(&message, &context)?),
    }
    Ok(Message { key: format!("receipt:{}", message.key), act: Act::Ok, ms: 0 })
}

#[subscriber("receipts", lease_ttl = "2s", max_poll = "1s")]
async fn receipts(message: Message, context: Context) -> Result<Outcome> {
    play(&message, &context).await;
    end(&message, &context)
}

#[subscriber(
    "crash",
    max_deliveries = 3,
    max_workers = 4,
    lease_ttl = "2s",
    max_poll = "1s",
    retry = Constant("100ms", max_attempts = 3)
)]
async fn crash(message: Message, context: Context) -> Result<Outcome> {
    play(&message, &context).await;
    end(&message, &context)
}

#[subscriber(["rare", "timers"], lease_ttl = "2s", min_poll = "500ms", max_poll = "1s")]
async fn rare(message: Message, context: Context) -> Result<Outcome> {
    play(&message, &context).await;
    end(&message, &context)
}

/// On PostgreSQL, or on SQLite.
pub(super) fn all(postgres: bool) -> Vec<Subscriber> {
    vec![
        if postgres { on_postgres::subscriber() } else { on_sqlite::subscriber() },
        single::subscriber(),
        batch::subscriber(),
        plain::subscriber(),
        returns::subscriber(),
        receipts::subscriber(),
        crash::subscriber(),
        rare::subscriber(),
    ]
}
