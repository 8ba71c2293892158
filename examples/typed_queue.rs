//! Queues that know the type of their messages.

use std::sync::atomic::{AtomicI64, Ordering};

use outbox::prelude::*;
use serde::{Deserialize, Serialize};

mod support;

#[derive(Serialize, Deserialize)]
struct Order {
    id: i64,
    cents: i64,
}

#[derive(Serialize, Deserialize)]
struct Invoice {
    order: i64,
    total: i64,
}

// The names are checked when compiling.
static ORDERS: Queue<Order> = Queue::new("orders");
static INVOICES: Queue<Invoice> = Queue::new("invoices");

/// A parameter that is no `Order`, or a result that is no `Invoice`, does not
/// compile.
#[subscriber(ORDERS, publish = INVOICES)]
async fn bill(order: Order) -> Invoice {
    Invoice { order: order.id, total: order.cents * 119 / 100 }
}

static BILLED: AtomicI64 = AtomicI64::new(0);

#[subscriber(INVOICES)]
async fn send(invoice: Invoice) {
    println!("invoice of order {}: {} cents", invoice.order, invoice.total);
    BILLED.fetch_add(invoice.total, Ordering::Relaxed);
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let scratch = support::Scratch::new()?;
    let pool = scratch.open().await?;
    let publisher = Publisher::default();

    let mut tx = outbox::sqlite::begin(&pool).await?;
    ORDERS.publish(&mut tx, &Order { id: 1, cents: 1000 }).await?;
    // A message with options; also for batches and for a publisher of other tables.
    let later = ORDERS.message(&Order { id: 2, cents: 2000 }).timer_id("order-2");
    publisher.publish_batch(&mut tx, [later]).await?;
    // A `Queue` can stand wherever a queue is named. Another type than `Order` does not compile.
    outbox::publish(&mut tx, ORDERS, &Order { id: 3, cents: 3000 }).await?;
    // A string names a queue too, but then nobody checks the type.
    outbox::publish(&mut tx, "orders", &Order { id: 4, cents: 4000 }).await?;
    tx.commit().await?;

    for row in publisher.pending(&mut *pool.acquire().await?, ORDERS, 10).await? {
        println!("waiting in {}: {}", row.queue, String::from_utf8_lossy(&row.payload));
    }
    App::sqlite(pool.clone()).run_until(support::no_message_left(&pool)).await?;
    println!("billed: {} cents", BILLED.load(Ordering::Relaxed));
    println!("left: {}", support::left(&pool).await?);
    Ok(())
}
