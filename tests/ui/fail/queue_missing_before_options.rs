use outbox::subscriber;

#[subscriber(max_workers = 5)]
async fn confirm(_: u64) {}

fn main() {}
