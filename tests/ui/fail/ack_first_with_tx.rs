use outbox::{Tx, subscriber};

#[subscriber("orders", ack = AckFirst)]
async fn confirm(_: u64, _tx: Tx<sqlx::Postgres>) {}

#[subscriber("clicks", batch = 10, ack = AckFirst)]
async fn count(_: Vec<u64>, _tx: outbox::Tx<sqlx::Sqlite>) {}

fn main() {}
