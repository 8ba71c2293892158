//! What a handler may do, what is generated beside it may do too.
#![deny(warnings)]

use outbox::subscriber;

#[deprecated]
#[derive(serde::Deserialize)]
pub struct Order;

#[allow(deprecated)]
#[subscriber("orders")]
async fn allowed(_: Order) {}

#[subscriber("batches", batch = 10)]
#[expect(deprecated, reason = "until all are handled")]
async fn expected(_: Vec<Order>) {}

#[deprecated]
#[subscriber("old")]
async fn deprecated(_: u64) {}

/// What is never returned any more may still be read by others.
#[derive(Debug, thiserror::Error, outbox::Failure)]
pub enum MailError {
    #[error("the server is down")]
    #[retry]
    Down,
    #[deprecated]
    #[error("an old one")]
    #[reject]
    Old,
}

#[deprecated]
#[derive(Debug, thiserror::Error, outbox::Failure)]
pub enum Former {
    #[error("it failed")]
    #[retry]
    Failed,
}

pub(super) fn main() {}
