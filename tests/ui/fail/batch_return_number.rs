use outbox::subscriber;

#[subscriber("orders", batch = 100)]
async fn confirm(orders: Vec<u64>) -> usize {
    orders.len()
}

fn main() {}
