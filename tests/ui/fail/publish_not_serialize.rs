use outbox::subscriber;

struct Confirmed;

#[subscriber("orders", publish = "confirmed")]
async fn confirm(_: u64) -> Result<Confirmed, String> {
    Ok(Confirmed)
}

fn main() {}
