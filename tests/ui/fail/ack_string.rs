use outbox::subscriber;

#[subscriber("orders", ack = "Manual")]
async fn confirm(_: u64) {}

fn main() {}
