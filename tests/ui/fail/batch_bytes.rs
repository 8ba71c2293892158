use bytes::Bytes;
use outbox::subscriber;

#[subscriber("orders", batch = 10)]
async fn confirm(_: Vec<Bytes>) {}

#[subscriber("orders", batch = 10)]
async fn read(_: outbox::Batch<outbox::Json<u64>>) {}

fn main() {}
