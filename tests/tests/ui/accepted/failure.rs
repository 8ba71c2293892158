//! Names that the macro uses too, and variants of every form.
#![deny(warnings)]
#![allow(dead_code)]

use std::time::Duration;

struct Option;
struct Result;

const NIGHT: Duration = Duration::from_secs(3600);

#[derive(Debug, thiserror::Error, outbox::Failure)]
pub enum r#MailError {
    #[error("down")]
    #[retry]
    Down,
    #[error("throttled")]
    #[retry(after = "1m 30s")]
    r#Throttled { seconds: u64 },
    #[error("address")]
    #[reject]
    Address(std::string::String, u64),
    #[error("night")]
    #[snooze(NIGHT)]
    Night(),
}

#[derive(Debug, thiserror::Error, outbox::Failure)]
enum Never {}

pub(super) fn main() {
    use outbox::{Failure, Verdict};

    #[derive(Debug, thiserror::Error, outbox::Failure)]
    enum InsideAFn {
        #[error("x")]
        #[reject]
        X,
    }

    let throttled = MailError::Throttled { seconds: 3 };
    assert_eq!(throttled.verdict(), Verdict::RetryAfter(Duration::from_secs(90)));
    assert_eq!(throttled.kind(), "Throttled");
    assert_eq!(MailError::Night().verdict(), Verdict::Snooze(NIGHT));
    assert_eq!((InsideAFn::X.verdict(), InsideAFn::X.kind()), (Verdict::Reject, "X"));
}
