use outbox::subscriber;

#[subscriber("orders", retry = Exponential(max_attempts = 5))]
async fn confirm(_: u64) {}

fn main() {}
