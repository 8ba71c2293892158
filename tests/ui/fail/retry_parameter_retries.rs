use outbox::subscriber;

#[subscriber("orders", retry = Constant("1s", retries = 5))]
async fn confirm(_: u64) {}

fn main() {}
