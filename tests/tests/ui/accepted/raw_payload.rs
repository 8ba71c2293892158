//! The payload as bytes.
#![deny(warnings)]

use outbox::{Bytes, Context, subscriber};

#[subscriber("q")]
async fn slice(payload: &[u8], ctx: Context) {
    std::future::ready(()).await;
    assert_eq!(payload, ctx.payload());
}

#[subscriber("q")]
async fn elided(_: &'_ str) {}

#[subscriber("q")]
async fn imported(mut payload: Bytes) {
    payload.clear();
}

#[subscriber("q")]
async fn by_path(_: outbox::Bytes) {}

#[subscriber("q")]
async fn of_the_bytes_crate(_: bytes::Bytes) {}

pub(super) fn main() {}
