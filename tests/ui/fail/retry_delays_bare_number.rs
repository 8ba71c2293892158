use outbox::subscriber;

#[subscriber("orders", retry = Delays(["1s", 10]))]
async fn confirm(_: u64) {}

fn main() {}
