use outbox::subscriber;

#[subscriber("orders", batch = 10)]
async fn confirm(_: Vec<u64>, #[cfg(unix)] _: outbox::State<u64>) {}

fn main() {}
