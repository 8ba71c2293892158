use outbox::subscriber;

#[subscriber("orders")]
async fn confirm(_: u64) -> ! {
    std::future::pending().await
}

fn main() {}
