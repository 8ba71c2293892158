use outbox::subscriber;

#[subscriber("orders", batch = 100)]
async fn confirm(_: u64) {}

fn main() {}
