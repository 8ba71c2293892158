use outbox::subscriber;

#[subscriber("orders", batch_wait = "50ms")]
async fn confirm(_: Vec<u64>) {}

fn main() {}
