use outbox::{Context, subscriber};

#[subscriber("orders", batch = 100)]
async fn confirm(_: Vec<u64>, _: Context) {}

fn main() {}
