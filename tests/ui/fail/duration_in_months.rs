use outbox::subscriber;

#[subscriber("orders", timeout = "5M")]
async fn confirm(_: u64) {}

fn main() {}
