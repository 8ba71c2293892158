use outbox::subscriber;

#[subscriber("orders", max_poll = true)]
async fn confirm(_: u64) {}

fn main() {}
