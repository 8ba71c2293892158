use outbox::subscriber;

#[subscriber("orders", publish = "confirmed")]
#[allow(unused_parens)]
async fn confirm(_: u64) -> (()) {}

fn main() {}
