use outbox::subscriber;

#[subscriber("orders", max_deliveries = -1)]
async fn confirm(_: u64) {}

fn main() {}
