use outbox::subscriber;

#[subscriber("orders")]
async fn confirm() {}

fn main() {}
