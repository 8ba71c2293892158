use outbox::{Batch, subscriber};

#[subscriber("clicks")]
async fn count(_: Batch<u64>) {}

fn main() {}
