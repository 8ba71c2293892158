use outbox::Queue;

static ORDERS: Queue<u64> = Queue::new("or\0ders");

fn main() {
    let _ = ORDERS.name();
}
