use outbox::{Queue, subscriber};

static CONFIRMED: Queue<u64> = Queue::new("confirmed");

#[subscriber("orders", batch = 100, publish = CONFIRMED)]
async fn confirm(orders: Vec<u64>) -> Vec<Option<String>> {
    orders.iter().map(|id| Some(id.to_string())).collect()
}

fn main() {}
