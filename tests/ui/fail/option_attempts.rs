use outbox::subscriber;

#[subscriber("orders", attempts = 5)]
async fn confirm(_: u64) {}

fn main() {}
