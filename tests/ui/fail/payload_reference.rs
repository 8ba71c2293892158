use outbox::subscriber;

#[subscriber("orders")]
async fn confirm(_: &String) {}

fn main() {}
