use outbox::subscriber;

#[subscriber("orders", retry = Exponential("1s"))]
async fn confirm(_: u64) {}

fn main() {}
