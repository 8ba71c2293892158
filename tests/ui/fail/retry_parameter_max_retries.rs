use outbox::subscriber;

#[subscriber("orders", retry = Exponential(initial = "1s", max_retries = 5))]
async fn confirm(_: u64) {}

fn main() {}
