//! The fn stays what it was: attributes, visibility, and callable.
#![deny(warnings, missing_docs)]
#![allow(clippy::double_must_use, reason = "an attribute of the fn's")]

use outbox::{State, subscriber};

#[subscriber("numbers")]
#[must_use]
#[inline]
async fn double(number: u64, State(by): State<u64>) -> Result<(), String> {
    if number * by == 10 { Ok(()) } else { Err("not ten".to_owned()) }
}

#[subscriber("numbers")]
#[deprecated = "use `double`"]
async fn old(_: u64) {}

#[tokio::main(flavor = "current_thread")]
pub(super) async fn main() {
    assert_eq!(double(5, State(2)).await, Ok(()));
    assert!(double(6, State(2)).await.is_err());
}
