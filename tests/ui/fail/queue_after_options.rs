use outbox::subscriber;

#[subscriber(max_workers = 5, "orders")]
async fn confirm(_: u64) {}

fn main() {}
