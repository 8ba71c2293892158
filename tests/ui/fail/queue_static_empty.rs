use outbox::Queue;

static ORDERS: Queue<u64> = Queue::new("");

fn main() {
    let _ = ORDERS.name();
}
