use outbox::Failure;

#[derive(Debug, thiserror::Error, Failure)]
enum MailError {
    #[error("down")]
    #[retry]
    #[reject]
    Down,
}

fn main() {}
