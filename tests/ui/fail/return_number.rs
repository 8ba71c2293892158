use outbox::subscriber;

#[subscriber("orders")]
async fn confirm(_: u64) -> u64 {
    7
}

fn main() {}
