use outbox::subscriber;

#[subscriber("orders", "payments")]
async fn confirm(_: u64) {}

fn main() {}
