#![deny(warnings)]

use outbox::testing::TestBroker;
use outbox::{Bytes, Encoded, Json, MessagePack, Outgoing, Publisher, Queue, subscriber};

pub struct NotEvenSerialisable;

static ORDERS: Queue<u64> = Queue::new("orders");
const CONFIRMED: Queue<String> = Queue::new("confirmed");
/// 255 characters, as many as the column holds, of twice as many bytes.
static LONG: Queue<u64> = Queue::new(
    "ééééééééééééééééééééééééééééééééééééééééééééééééééé\
     ééééééééééééééééééééééééééééééééééééééééééééééééééé\
     ééééééééééééééééééééééééééééééééééééééééééééééééééé\
     ééééééééééééééééééééééééééééééééééééééééééééééééééé\
     ééééééééééééééééééééééééééééééééééééééééééééééééééé",
);
static ODD: Queue<NotEvenSerialisable> = Queue::new("odd");

#[subscriber(ORDERS, publish = CONFIRMED)]
async fn confirm(id: u64) -> Result<Option<String>, std::fmt::Error> {
    Ok(Some(id.to_string()))
}

#[subscriber([Queue::<u64>::new("new orders"), Queue::new("changed orders")])]
async fn both(_: u64) {}

#[subscriber(ODD)]
async fn raw(_: &[u8]) {}

#[subscriber(Queue::<u64>::new("other"))]
async fn bytes(_: Bytes) {}

#[subscriber(CONFIRMED)]
async fn text(_: &str) {}

#[subscriber(Queue::<u64>::new("encoded"))]
async fn encoded(_: Encoded<MessagePack, u64>) {}

#[subscriber(Queue::<u64>::new("json"))]
async fn json(_: Json<u64>) {}

/// A queue is named by strings of any kind, or by itself.
pub async fn publishes(
    tx: &mut sqlx::PgTransaction<'_>,
    publisher: Publisher,
    broker: TestBroker,
) -> Result<(), Box<dyn std::error::Error>> {
    let (string, shared) = (String::from("orders"), std::sync::Arc::<str>::from("orders"));
    let cow = std::borrow::Cow::from("orders");
    outbox::publish(tx, "orders", &7).await?;
    outbox::publish(tx, &string, "seven").await?;
    outbox::publish(tx, string.clone(), &[7][..]).await?;
    outbox::publish(tx, &*shared, &None::<u64>).await?;
    outbox::publish(tx, ORDERS, &7).await?;
    outbox::publish(tx, &ORDERS, &7).await?;
    outbox::publish(tx, ORDERS.name(), "not checked").await?;
    publisher.publish(tx, &cow, &7).await?;
    publisher.publish(tx, CONFIRMED, &string).await?;
    publisher.publish(tx, &"orders", &7).await?;
    publisher.message(ORDERS, &7).publish(tx).await?;
    publisher.message(string.as_str(), &7).publish(tx).await?;
    publisher.cancel_timer(tx, ORDERS, "name").await?;
    publisher.cancel_timer(tx, &string, "name").await?;
    publisher.pending(&mut **tx, ORDERS, 10).await?;
    publisher.pending(&mut **tx, "orders", 10).await?;
    broker.publish("orders", &7).await?;
    broker.publish(&string, &7).await?;
    broker.publish(ORDERS, &7).await?;
    broker.publish(&ORDERS, &7).await?;
    broker.cancel_timer(ORDERS, "name").await?;
    Outgoing::new(ORDERS, &7).publish(tx).await?;
    Outgoing::new(format!("{string}-7"), &7).publish(tx).await?;
    ORDERS.encoded::<MessagePack>(&7).publish(tx).await?;
    Ok(())
}

/// The future can be spawned.
pub fn spawned(mut tx: sqlx::PgTransaction<'static>) -> impl Future + Send {
    async move { outbox::publish(&mut tx, ORDERS, &7).await }
}

pub(super) fn main() {
    assert_eq!(confirm::subscriber().queues(), ["orders"]);
    assert_eq!(LONG.name().chars().count(), 255);
    assert_eq!(raw::subscriber().queues(), ["odd"]);
    assert_eq!(bytes::subscriber().queues(), ["other"]);
}
