use outbox::subscriber;

#[subscriber("orders")]
fn confirm(_: u64) {}

fn main() {}
