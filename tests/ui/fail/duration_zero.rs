use outbox::subscriber;

#[subscriber("orders", timeout = "0s")]
async fn confirm(_: u64) {}

#[subscriber("orders", retry = Linear(initial = "0s", step = "0s"))]
async fn retried(_: u64) {}

fn main() {}
