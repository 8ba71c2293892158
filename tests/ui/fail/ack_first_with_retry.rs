use outbox::subscriber;

#[subscriber("orders", ack = AckFirst, retry = Constant("5s"))]
async fn confirm(_: u64) {}

fn main() {}
