//! The mistake is the only error, also when the rest uses the handler.
use outbox::{Subscriber, subscriber};

#[subscriber("orders", max_worker = 5)]
pub async fn confirm(id: u64) -> Result<(), String> {
    Err(id.to_string())
}

fn main() {
    let _: Vec<Subscriber> = vec![confirm::subscriber()];
    drop(confirm(5));
}
