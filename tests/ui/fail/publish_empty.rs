use outbox::subscriber;

#[subscriber("orders", publish = "")]
async fn confirm(id: u64) -> u64 {
    id
}

fn main() {}
