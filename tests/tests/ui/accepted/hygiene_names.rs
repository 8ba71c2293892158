//! Handlers whose names the generated code might use itself.
#![deny(warnings)]

use outbox::{Context, subscriber};

#[subscriber("q")]
async fn d(_: u64) {}

#[subscriber("q")]
async fn ctx(_: u64, ctx: Context) {
    let _ = ctx.id();
}

#[subscriber("q")]
async fn subscriber(_: u64) {}

#[subscriber("q")]
async fn r#type(r#match: u64) {
    let _ = r#match;
}

pub(super) fn main() {
    assert_eq!(r#type::subscriber().name(), "type");
    let _ = (d::subscriber(), ctx::subscriber(), subscriber::subscriber());
}
