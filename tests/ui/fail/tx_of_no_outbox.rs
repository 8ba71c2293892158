use outbox::{Tx, subscriber};

#[subscriber("orders")]
async fn confirm(_: u64, _: Tx<sqlx::Any>) {}

fn main() {}
