use outbox::Failure;

#[derive(Debug, thiserror::Error, Failure)]
enum MailError {
    #[error("night")]
    #[snooze(60)]
    Night,
}

fn main() {}
