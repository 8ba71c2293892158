use outbox::subscriber;

#[subscriber("orders", batch = 100)]
async fn confirm(_: Vec<&str>) {}

fn main() {}
