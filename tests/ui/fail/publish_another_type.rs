use outbox::{Queue, subscriber};

static CONFIRMED: Queue<u64> = Queue::new("confirmed");

#[subscriber("orders", publish = CONFIRMED)]
async fn confirm(id: u64) -> Result<String, std::fmt::Error> {
    Ok(id.to_string())
}

fn main() {}
