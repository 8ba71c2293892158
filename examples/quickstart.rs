//! Orders and their messages: published together, handled, retried, dead-lettered.
//!
//! Runs on a SQLite file in a temporary folder; with `DATABASE_URL=postgres://…`
//! on that server, in a schema of its own. Either is removed at the end.

use std::sync::atomic::{AtomicUsize, Ordering};

use outbox::prelude::*;
use serde::{Deserialize, Serialize};

#[path = "support/shop.rs"]
mod shop;
use shop::Shop;

static HANDLED: AtomicUsize = AtomicUsize::new(0);
static RETRIED: AtomicUsize = AtomicUsize::new(0);

#[derive(Serialize, Deserialize)]
struct Order {
    id: i64,
}

#[subscriber("orders", retry = Constant("200ms", max_attempts = 5))]
async fn confirm(order: Order, ctx: Context) -> Result<(), String> {
    let attempt = ctx.attempts() + 1;
    if order.id == 2 && attempt <= 2 {
        RETRIED.fetch_add(1, Ordering::Relaxed);
        println!("  order {} fails (attempt {attempt}); it will be tried again", order.id);
        return Err("the printer is out of paper".into());
    }
    HANDLED.fetch_add(1, Ordering::Relaxed);
    println!("  order {} is confirmed (attempt {attempt})", order.id);
    Ok(())
}

#[subscriber("invoices", retry = NoRetry)]
async fn invoice(order: Order) -> Result<(), String> {
    println!("  the invoice of order {} fails for good", order.id);
    Err(format!("order {} has no address", order.id))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let shop = Shop::open().await?;
    let told = story(&shop).await;
    shop.close().await?;
    println!("{}", told?);
    Ok(())
}

async fn story(shop: &Shop) -> anyhow::Result<String> {
    println!("Four orders and one invoice, each committed together with its message.");
    let mut begun = 0;
    for id in 1..=4 {
        begun += shop.place(id, "orders", &Order { id }, true).await?;
    }
    begun += shop.place(5, "invoices", &Order { id: 5 }, true).await?;
    println!("One more order is rolled back, and its message with it.");
    begun += shop.place(6, "orders", &Order { id: 6 }, false).await?;
    let published = shop.count("outbox").await?;
    let rolled_back = begun.cast_signed() - shop.count("orders").await?;

    println!("The app starts:");
    let running = shop.app()?.start().await?;
    let emptied = shop.empty().await;
    running.stop().await?;
    emptied?;

    println!("What was dead-lettered, and why:");
    let dead = shop.dead_letters().await?;
    for (queue, reason, error) in &dead {
        println!("  {queue}: {reason}: {}", error.as_deref().unwrap_or_default());
    }
    let (handled, retried) = (HANDLED.load(Ordering::Relaxed), RETRIED.load(Ordering::Relaxed));
    let (dead, left) = (dead.len(), shop.count("outbox").await?);
    Ok(format!(
        "quickstart: published={published} rolled_back={rolled_back} handled={handled} \
         retried={retried} dead_lettered={dead} left={left}"
    ))
}
