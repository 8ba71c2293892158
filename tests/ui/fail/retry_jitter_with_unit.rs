use outbox::subscriber;

#[subscriber("orders", retry = Constant("5s", jitter = 1s))]
async fn confirm(_: u64) {}

fn main() {}
