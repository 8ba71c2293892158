use outbox::subscriber;

#[subscriber("orders", ack = NackOnErr)]
async fn confirm(_: u64) {}

fn main() {}
