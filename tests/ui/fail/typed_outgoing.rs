use outbox::{Outgoing, Queue};

static ORDERS: Queue<u64> = Queue::new("orders");

fn main() {
    let _ = Outgoing::new(ORDERS, "an order");
}
