use outbox::subscriber;

#[subscriber("orders", colour = 5)]
async fn confirm(_: u64) {}

fn main() {}
