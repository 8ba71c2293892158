use outbox::subscriber;

#[subscriber("orders", ack = outbox::AckPolicy::Manuel)]
async fn confirm(_: u64) {}

fn main() {}
