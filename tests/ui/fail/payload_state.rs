use outbox::{State, subscriber};

#[subscriber("orders")]
async fn confirm(_: State<u64>, _: u64) {}

fn main() {}
