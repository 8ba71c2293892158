use outbox::Failure;

#[derive(Debug, thiserror::Error, Failure)]
enum MailError {
    #[error("down")]
    #[retry("5m")]
    Down,
}

fn main() {}
