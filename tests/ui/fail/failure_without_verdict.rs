use outbox::Failure;

#[derive(Debug, thiserror::Error, Failure)]
enum MailError {
    #[error("down")]
    #[retry]
    Down,
    #[error("no address")]
    Address(String),
}

fn main() {}
