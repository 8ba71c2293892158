use outbox::subscriber;

#[subscriber("orders", batch = 100, publish = "confirmed")]
async fn confirm(orders: Vec<u64>) -> Vec<u64> {
    orders
}

fn main() {}
