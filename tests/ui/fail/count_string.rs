use outbox::subscriber;

#[subscriber("orders", fetch_batch = "10")]
async fn confirm(_: u64) {}

fn main() {}
