use outbox::subscriber;

#[subscriber("orders", retry = NoRetry())]
async fn confirm(_: u64) {}

fn main() {}
