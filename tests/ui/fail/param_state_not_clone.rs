use outbox::subscriber;

struct Mailer;

#[subscriber("orders")]
async fn confirm(_: u64, _: outbox::State<Mailer>) {}

fn main() {}
