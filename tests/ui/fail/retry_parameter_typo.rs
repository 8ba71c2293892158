use outbox::subscriber;

#[subscriber("orders", retry = Exponential(inital = "1s"))]
async fn confirm(_: u64) {}

fn main() {}
