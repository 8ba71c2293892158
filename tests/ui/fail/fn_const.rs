use outbox::subscriber;

#[subscriber("orders")]
const fn confirm(_: u64) {}

fn main() {}
