use outbox::subscriber;

#[subscriber("orders")]
async fn confirm(_: Vec<&str>) {}

fn main() {}
