use outbox::subscriber;

#[subscriber("orders", 5)]
async fn confirm(_: u64) {}

fn main() {}
