//! What a handler returns is published by the statement that acks its message.

use std::time::Duration;

use outbox::Outgoing;
use outbox::prelude::*;
use outbox::testing::TestBroker;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    id: i64,
    items: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Parcel {
    order: i64,
    item: String,
}

/// A `Vec` is several messages, an `Err` none.
#[subscriber("orders", publish = "parcels", retry = NoRetry)]
async fn pack(order: Order) -> Result<Vec<Parcel>, String> {
    let Order { id, items } = order;
    if items.is_empty() {
        return Err(format!("order {id} is empty"));
    }
    Ok(items.into_iter().map(|item| Parcel { order: id, item }).collect())
}

/// `None` is no message.
#[subscriber("parcels", publish = "labels")]
async fn label(parcel: Parcel) -> Option<String> {
    (parcel.item != "e-book").then(|| format!("order {}: {}", parcel.order, parcel.item))
}

/// An `Outgoing` has options, and may name another queue than the attribute.
#[subscriber("labels", publish = "reminders")]
async fn print(label: String, publisher: Publisher) -> anyhow::Result<Outgoing> {
    publisher.collect(Outgoing::new("printed", &label))?; // with the ack as well
    Ok(Outgoing::new("reminders", &label).delay(Duration::from_secs(3600)))
}

fn waiting(broker: &TestBroker, queue: &str) -> Vec<String> {
    let rows = broker.rows().into_iter().filter(|row| row.queue == queue);
    rows.map(|row| String::from_utf8_lossy(&row.payload).into_owned()).collect()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let broker = TestBroker::with([pack::subscriber()]);
    let order = Order { id: 1, items: ["lamp", "e-book"].map(String::from).into() };
    broker.crash_next(1); // the handler returns, and its process dies before the ack
    broker.publish("orders", &order).await?;
    println!("after a crash: {}", waiting(&broker, "parcels").len());
    broker.redeliver().await;
    println!("handled again: {}", waiting(&broker, "parcels").join(", "));
    broker.publish("orders", &Order { id: 2, items: Vec::new() }).await?;
    println!("after an error: {}", waiting(&broker, "parcels").len());
    println!("dead letters: {}", broker.dlq_rows().len());

    let broker = TestBroker::new(); // every handler, one queue after the other
    broker.publish("orders", &order).await?;
    println!("parcels: {}", broker.calls("label").len());
    println!("printed: {}", waiting(&broker, "printed").join(", "));
    for row in broker.rows().iter().filter(|row| row.queue == "reminders") {
        let wait = row.next_attempt_at.duration_since(broker.now())?;
        println!("reminder in {wait:?}: {}", String::from_utf8_lossy(&row.payload));
    }
    Ok(())
}
