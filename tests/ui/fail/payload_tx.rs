use outbox::{Tx, subscriber};

#[subscriber("orders")]
async fn confirm(_: Tx<sqlx::Postgres>, _: u64) {}

fn main() {}
