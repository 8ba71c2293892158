use outbox::subscriber;

#[subscriber("orders", retry = Exponental(initial = "1s"))]
async fn confirm(_: u64) {}

fn main() {}
