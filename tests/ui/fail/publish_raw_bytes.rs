use bytes::Bytes;
use outbox::subscriber;

#[subscriber("orders", publish = "confirmations")]
async fn confirm(_: u64) -> Option<Bytes> {
    None
}

fn main() {}
