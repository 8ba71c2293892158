use outbox::subscriber;

#[subscriber("orders", retry = Constant("5s", jitter = 0.2, jitter = 0.2))]
async fn confirm(_: u64) {}

fn main() {}
