use outbox::subscriber;

#[subscriber("orders", retry = Constant("5s", max_attempts = 0))]
async fn confirm(_: u64) {}

fn main() {}
