use outbox::subscriber;

#[subscriber("orders")]
async fn confirm<'a>(_: &'a str) {}

fn main() {}
