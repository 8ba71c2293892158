use outbox::subscriber;

#[subscriber("orders", max_delivery = 5)]
async fn confirm(_: u64) {}

fn main() {}
