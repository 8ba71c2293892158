use outbox::subscriber;

#[subscriber("orders", timeout = 500ms)]
async fn confirm(_: u64) {}

fn main() {}
