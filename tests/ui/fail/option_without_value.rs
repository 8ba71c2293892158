use outbox::subscriber;

#[subscriber("orders", retry)]
async fn confirm(_: u64) {}

fn main() {}
