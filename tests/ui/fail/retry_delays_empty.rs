use outbox::subscriber;

#[subscriber("orders", retry = Delays([]))]
async fn confirm(_: u64) {}

fn main() {}
