use outbox::subscriber;

#[subscriber("or\0ders")]
async fn confirm(_: u64) {}

fn main() {}
