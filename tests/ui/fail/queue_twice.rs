use outbox::subscriber;

#[subscriber(["orders", "payments", "orders"])]
async fn confirm(_: u64) {}

fn main() {}
