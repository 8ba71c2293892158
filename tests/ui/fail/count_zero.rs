use outbox::subscriber;

#[subscriber("orders", max_workers = 0)]
async fn confirm(_: u64) {}

fn main() {}
