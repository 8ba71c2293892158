use outbox::subscriber;

#[subscriber(5)]
async fn confirm(_: u64) {}

fn main() {}
