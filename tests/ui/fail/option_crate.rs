mod platform {
    pub use outbox;
}

#[platform::outbox::subscriber("orders", crate = platform::outbox)]
async fn confirm(_: u64) {}

fn main() {}
