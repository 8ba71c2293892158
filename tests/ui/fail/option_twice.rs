use outbox::subscriber;

#[subscriber("orders", retry = NoRetry, max_workers = 5, retry = NoRetry)]
async fn confirm(_: u64) {}

fn main() {}
