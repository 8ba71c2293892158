use outbox::subscriber;

#[subscriber([])]
async fn confirm(_: u64) {}

fn main() {}
