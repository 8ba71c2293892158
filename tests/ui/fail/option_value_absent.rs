use outbox::subscriber;

#[subscriber("orders", max_workers = , fetch_batch = 5)]
async fn confirm(_: u64) {}

fn main() {}
