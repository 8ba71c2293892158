use outbox::{Failure, Verdict};

#[derive(Debug)]
struct BadAddress;

impl std::fmt::Display for BadAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("bad address")
    }
}

impl std::error::Error for BadAddress {}

impl Failure for BadAddress {
    fn verdict(&self) -> Verdict {
        Verdict::Reject
    }

    fn kind(&self) -> &'static str {
        "BadAddress"
    }
}

fn main() {}
