use outbox::subscriber;

#[subscriber("orders", timeout = 0.5)]
async fn confirm(_: u64) {}

fn main() {}
