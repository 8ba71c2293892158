use outbox::Failure;

#[derive(Debug, thiserror::Error, Failure)]
enum MailError<T> {
    #[error("down")]
    #[retry]
    Down(T),
}

fn main() {}
