use outbox::subscriber;

#[subscriber("orders", batch = 0)]
async fn confirm(_: Vec<u64>) {}

fn main() {}
