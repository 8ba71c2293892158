use outbox::subscriber;

#[subscriber("orders", retry = Constant("5s", jitter = 2.5))]
async fn confirm(_: u64) {}

fn main() {}
