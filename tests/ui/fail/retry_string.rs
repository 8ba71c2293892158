use outbox::subscriber;

#[subscriber("orders", retry = "1s")]
async fn confirm(_: u64) {}

fn main() {}
