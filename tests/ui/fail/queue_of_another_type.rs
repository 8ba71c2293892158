use outbox::{Queue, subscriber};

static ORDERS: Queue<u64> = Queue::new("orders");

#[subscriber(ORDERS)]
async fn confirm(_: String) {}

fn main() {}
