use outbox::{Publisher, subscriber};

#[subscriber("orders")]
async fn confirm(_: Publisher, _: u64) {}

fn main() {}
