use outbox::Failure;

#[derive(Debug, thiserror::Error, Failure)]
#[error("down")]
struct Down;

fn main() {}
