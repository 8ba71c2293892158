use outbox::subscriber;

#[subscriber("orders")]
async fn confirm(_: u64)
where
    u64: Copy,
{
}

fn main() {}
