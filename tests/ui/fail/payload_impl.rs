use outbox::subscriber;

#[subscriber("orders")]
async fn confirm(_: impl Clone) {}

fn main() {}
