use outbox::subscriber;

#[subscriber("orders")]
async fn confirm(_: u64, #[cfg(unix)] _: outbox::Context) {}

fn main() {}
