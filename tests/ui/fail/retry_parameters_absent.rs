use outbox::subscriber;

#[subscriber("orders", retry = Linear)]
async fn confirm(_: u64) {}

fn main() {}
