use outbox::subscriber;

#[subscriber("orders", retry = Linear(initial = "1s", step = 1))]
async fn confirm(_: u64) {}

fn main() {}
