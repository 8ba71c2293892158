use outbox::subscriber;

#[subscriber("orders", lease_ttl = 60)]
async fn confirm(_: u64) {}

fn main() {}
