use outbox::Failure;

#[derive(Debug, thiserror::Error, Failure)]
enum MailError {
    #[error("no address")]
    #[reject("no address")]
    Address,
}

fn main() {}
