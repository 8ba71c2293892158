//! Orders and their messages: published together, handled, retried, dead-lettered.
//!
//! Without `DATABASE_URL` it runs on a SQLite file in a temporary folder; with
//! `DATABASE_URL=postgres://…` on that server.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outbox::prelude::*;
use serde::{Deserialize, Serialize};

mod support;
use support::Shop;

static HANDLED: AtomicUsize = AtomicUsize::new(0);
static RETRIED: AtomicUsize = AtomicUsize::new(0);

#[derive(Serialize, Deserialize)]
struct Order {
    id: i64,
}

#[subscriber("orders", retry = Constant("200ms", max_attempts = 5))]
async fn confirm(order: Order, ctx: Context) -> Result<(), String> {
    if order.id == 2 && ctx.attempts() < 2 {
        RETRIED.fetch_add(1, Ordering::Relaxed);
        println!(
            "  order {} fails (attempt {}); it will be tried again",
            order.id,
            ctx.attempts() + 1
        );
        return Err("the printer is out of paper".into());
    }
    HANDLED.fetch_add(1, Ordering::Relaxed);
    println!("  order {} is confirmed (attempt {})", order.id, ctx.attempts() + 1);
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
    println!("Four orders and one invoice, each committed together with its message:");
    for id in 1..=4 {
        shop.order(id, "orders", true).await?;
    }
    shop.order(5, "invoices", true).await?;
    let published = shop.count("outbox").await?;
    println!("One more order that is rolled back, and its message with it:");
    shop.order(6, "orders", false).await?;
    let rolled_back = 6 - shop.count("orders").await?;

    println!("The app starts:");
    let running = shop.app()?.start().await?;
    while shop.count("outbox").await? > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running.stop().await?;

    println!("What was dead-lettered, and why:");
    let dead = shop.dead_letters().await?;
    for (queue, reason, error) in &dead {
        println!("  {queue}: {reason}: {}", error.as_deref().unwrap_or_default());
    }
    let (handled, retried) = (HANDLED.load(Ordering::Relaxed), RETRIED.load(Ordering::Relaxed));
    let (dead, left) = (dead.len(), shop.count("outbox").await?);
    shop.close().await?;
    println!(
        "quickstart: published={published} rolled_back={rolled_back} handled={handled} \
         retried={retried} dead_lettered={dead} left={left}"
    );
    Ok(())
}
