use outbox::subscriber;

#[subscriber("orders")]
async unsafe fn confirm(_: u64) {}

fn main() {}
