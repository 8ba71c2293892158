use outbox::{State, subscriber};

#[subscriber("orders")]
async fn confirm(_: u64, _: &State<u64>) {}

fn main() {}
