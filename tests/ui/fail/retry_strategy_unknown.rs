use outbox::subscriber;

#[subscriber("orders", retry = Fibonacci(initial = "1s"))]
async fn confirm(_: u64) {}

fn main() {}
