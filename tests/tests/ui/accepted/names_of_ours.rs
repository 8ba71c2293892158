//! Types of the user's with names of ours.
#![deny(warnings)]

use outbox::subscriber;

mod ledger {
    #[derive(Clone, Copy)]
    pub struct Tx;
    impl outbox::FromContext for Tx {
        type Rejection = std::convert::Infallible;
        async fn from_context(_: &outbox::Context) -> Result<Self, Self::Rejection> {
            Ok(Self)
        }
    }
}

mod retry {
    use std::time::Duration;

    pub struct Linear;
    impl outbox::retry::RetryStrategy for Linear {
        fn next_delay(&self, _: &outbox::retry::FailedAttempt<'_>) -> Option<Duration> {
            None
        }
    }
    pub use Linear as Exponential;
}

use retry::Exponential;

#[subscriber("own transactions", ack = AckFirst)]
async fn transaction(_: u64, _: ledger::Tx) {}

#[subscriber("own strategies", retry = self::retry::Linear)]
async fn strategy(_: u64) {}

#[subscriber("own strategy of this name", retry = self::Exponential)]
async fn named(_: u64) {}

mod warehouse {
    #[derive(serde::Deserialize)]
    pub struct Batch;
    #[derive(serde::Deserialize)]
    pub struct State;
    #[derive(serde::Deserialize)]
    pub struct Context;
}

use warehouse::Context as Surroundings;

#[subscriber("batches")]
async fn batch(_: warehouse::Batch) {}

#[subscriber("several", batch = 10)]
async fn several(_: Vec<warehouse::Batch>) {}

#[subscriber("states")]
async fn state(_: warehouse::State) {}

#[subscriber("contexts")]
async fn context(_: Surroundings, _: outbox::Context) {}

pub(super) fn main() {}
