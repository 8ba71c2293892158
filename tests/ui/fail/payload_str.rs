use outbox::subscriber;

#[subscriber("orders")]
async fn confirm(_: &str) {}

fn main() {}
