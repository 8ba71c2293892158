use outbox::Failure;

#[derive(Debug, Failure)]
enum MailError {
    #[retry]
    Down,
}

fn main() {}
