//! A program with handlers that mounts the command line, for the tests to run.

use std::process::ExitCode;

use outbox::{App, Context, FromContext, HandlerError, Subscriber, Tx, subscriber};
use serde::Deserialize;

#[derive(Deserialize)]
struct Order {
    id: i64,
    amount: i64,
}

/// Says that it ran: a doctor must not make it.
#[subscriber("orders", retry = NoRetry)]
async fn confirm(order: Order) {
    println!("confirmed {} of {}", order.id, order.amount);
}

#[subscriber("clicks", batch = 10)]
async fn count(clicks: Vec<u64>) {
    println!("counted {}", clicks.len());
}

#[subscriber("notes")]
async fn keep(note: &str) {
    println!("kept {}", note.len());
}

#[subscriber("blobs")]
async fn store(blob: &[u8]) {
    println!("stored {}", blob.len());
}

/// A type whose decoding panics.
struct Fragile;

impl<'de> Deserialize<'de> for Fragile {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("not decodable")
    }
}

#[subscriber("fragile")]
async fn hold(_: Fragile) {}

/// Takes the transaction, of whichever database it is.
macro_rules! book {
    ($name:ident, $database:ty) => {
        async fn $name(ctx: Context) -> Result<(), HandlerError> {
            let mut tx = Tx::<$database>::from_context(&ctx).await?;
            let order: Order = ctx.decode()?;
            outbox::publish(&mut tx, "receipts", &order.id).await?;
            if order.amount < 0 { Err(HandlerError::new("Amount", "below zero")) } else { Ok(()) }
        }
    };
}
book!(book_on_postgres, sqlx::Postgres);
book!(book_on_sqlite, sqlx::Sqlite);

fn books() -> Subscriber {
    let url = std::env::var("DATABASE_URL").unwrap_or_default();
    let books = if url.starts_with("postgres") {
        Subscriber::new("book", "books", book_on_postgres).requires::<Tx<sqlx::Postgres>>()
    } else {
        Subscriber::new("book", "books", book_on_sqlite).requires::<Tx<sqlx::Sqlite>>()
    };
    books.decodes::<Order>()
}

#[tokio::main]
async fn main() -> ExitCode {
    let by_hand =
        Subscriber::new("by_hand", "raw", |delivery: Context| async move { drop(delivery) });
    outbox::cli::run(App::from_env().include(by_hand).include(books())).await
}
