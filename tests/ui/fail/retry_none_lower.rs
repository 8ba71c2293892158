use outbox::subscriber;

#[subscriber("orders", retry = none)]
async fn confirm(_: u64) {}

fn main() {}
