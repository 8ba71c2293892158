//! Strategies that are expressions.
#![deny(warnings)]
use outbox::retry::{self, Constant, Exponential, FailedAttempt, Linear, NoRetry, RetryStrategy};
use std::time::Duration;

struct Twice(u64);

impl RetryStrategy for Twice {
    fn next_delay(&self, failed: &FailedAttempt<'_>) -> Option<Duration> {
        (failed.attempts < self.0).then_some(Duration::from_secs(1))
    }
}

#[outbox::subscriber("q", retry = Twice(2))]
async fn own(_: u64) {}

#[outbox::subscriber("q", retry = Exponential::new(Duration::from_secs(1)).jitter(0.1))]
async fn built(_: u64) {}

const SECOND: Duration = Duration::from_secs(1);
const OURS: Exponential =
    Exponential::new(SECOND).multiplier(3.0).max_delay(SECOND).jitter(0.1).max_attempts(5);
const _: Linear = Linear::new(SECOND, SECOND).max_delay(SECOND).max_total_delay(SECOND);
const _: Constant = Constant::new(SECOND).max_attempts(5);

#[outbox::subscriber("q", retry = OURS)]
async fn one(_: u64) {}

#[outbox::subscriber("other", retry = OURS)]
async fn another(_: u64) {}

fn chosen() -> Box<dyn RetryStrategy> {
    if cfg!(unix) { Box::new(Twice(2)) } else { Box::new(NoRetry) }
}

#[outbox::subscriber("q", retry = chosen())]
async fn boxed(_: u64) {}

#[outbox::subscriber("q", retry = retry::Delays([Duration::from_secs(1), "2s"]))]
async fn delays(_: u64) {}

pub(super) fn main() {
    let _ = own::subscriber().retry(NoRetry);
}
