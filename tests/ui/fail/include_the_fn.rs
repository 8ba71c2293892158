use outbox::{Router, subscriber};

#[subscriber("orders")]
async fn confirm(_: u64) {}

fn main() {
    let _ = Router::new().prefix("eu.").include(confirm);
}
