use outbox::subscriber;

#[subscriber("orders", publish = "confirmed")]
async fn confirm(_: u64) -> Result<(), String> {
    Ok(())
}

fn main() {}
