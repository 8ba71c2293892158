use outbox::Failure;

#[derive(Debug, thiserror::Error, Failure)]
#[retry]
enum MailError {
    #[error("down")]
    #[retry]
    Down,
}

fn main() {}
