use outbox::subscriber;

#[subscriber("orders", min_poll = "5 parsecs")]
async fn confirm(_: u64) {}

fn main() {}
