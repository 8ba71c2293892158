use outbox::subscriber;

#[subscriber("orders", retry = None)]
async fn confirm(_: u64) {}

fn main() {}
