use outbox::subscriber;

#[subscriber(queue = "orders")]
async fn confirm(_: u64) {}

fn main() {}
