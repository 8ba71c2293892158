use outbox::subscriber;

#[subscriber("orders", publish = "confirmed")]
async fn confirm(_: u64) -> Result<outbox::Outcome, String> {
    Ok(outbox::Outcome::Ack)
}

fn main() {}
