use outbox::subscriber;

#[subscriber("orders", timeout("5s"))]
async fn confirm(_: u64) {}

fn main() {}
