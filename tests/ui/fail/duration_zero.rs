use outbox::subscriber;

#[subscriber("orders", timeout = "0s")]
async fn confirm(_: u64) {}

fn main() {}
