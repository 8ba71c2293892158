use outbox::subscriber;

struct Patient;

#[subscriber("orders", retry = Patient)]
async fn confirm(_: u64) {}

fn main() {}
