use outbox::subscriber;

#[subscriber("orders", batch = 100, publish = "totals")]
async fn total(orders: Vec<u64>) -> Result<u64, String> {
    Ok(orders.iter().sum())
}

fn main() {}
