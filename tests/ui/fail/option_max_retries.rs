use outbox::subscriber;

#[subscriber("orders", max_retries = 5)]
async fn confirm(_: u64) {}

fn main() {}
