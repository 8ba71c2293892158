use outbox::subscriber;

struct Mailer;

impl Mailer {
    #[subscriber("orders")]
    async fn confirm(&self, _: u64) {}
}

fn main() {}
