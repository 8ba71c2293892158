use outbox::Failure;

#[derive(Debug, thiserror::Error, Failure)]
enum MailError {
    #[error("night")]
    #[snooze]
    Night,
}

fn main() {}
