#![deny(warnings)]

use outbox::{Bytes, Queue, subscriber};

pub struct NotEvenSerialisable;

static ORDERS: Queue<u64> = Queue::new("orders");
const CONFIRMED: Queue<String> = Queue::new("confirmed");
static ODD: Queue<NotEvenSerialisable> = Queue::new("odd");

#[subscriber(ORDERS, publish = CONFIRMED)]
async fn confirm(id: u64) -> Result<Option<String>, std::fmt::Error> {
    Ok(Some(id.to_string()))
}

#[subscriber(ODD)]
async fn raw(_: &[u8]) {}

#[subscriber(Queue::<u64>::new("other"))]
async fn bytes(_: Bytes) {}

fn main() {
    assert_eq!(confirm::subscriber().queues(), ["orders"]);
    assert_eq!(raw::subscriber().queues(), ["odd"]);
    assert_eq!(bytes::subscriber().queues(), ["other"]);
}
