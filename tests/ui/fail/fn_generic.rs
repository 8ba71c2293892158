use outbox::subscriber;

#[subscriber("orders")]
async fn confirm<T>(_: T) {}

fn main() {}
