use outbox::subscriber;

#[subscriber("orders", publish = "confirmed", ack = AckFirst)]
async fn confirm(id: u64) -> u64 {
    id
}

fn main() {}
