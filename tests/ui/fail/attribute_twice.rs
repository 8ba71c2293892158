use outbox::subscriber;

#[subscriber("orders")]
#[subscriber("payments")]
async fn confirm(_: u64) {}

fn main() {}
