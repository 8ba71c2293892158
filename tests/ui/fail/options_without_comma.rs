use outbox::subscriber;

#[subscriber("orders", max_workers = 5 fetch_batch = 5)]
async fn confirm(_: u64) {}

fn main() {}
