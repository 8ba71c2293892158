use outbox::{Queue, subscriber};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    id: u64,
}

static ORDERS: Queue<Order> = Queue::new("orders");

#[subscriber(ORDERS)]
async fn text(order: &str) {
    println!("{order}");
}

fn main() {}
