use outbox::subscriber;

struct Refusal;

#[subscriber("orders")]
async fn confirm(_: u64) -> Result<(), Refusal> {
    Err(Refusal)
}

fn main() {}
