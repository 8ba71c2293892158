use outbox::subscriber;

#[subscriber("orders", batch = 100)]
fn confirm(_: Vec<u64>) {}

fn main() {}
