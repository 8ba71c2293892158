use outbox::subscriber;

#[subscriber("orders")]
async extern "C" fn confirm(_: u64) {}

fn main() {}
