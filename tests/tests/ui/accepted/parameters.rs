//! Patterns, and state that holds references.
#![deny(warnings)]

use outbox::{Context, Headers, State, subscriber};

#[derive(serde::Deserialize)]
struct Order {
    id: i64,
}

#[subscriber("q")]
async fn patterns(Order { id }: Order, State(name): State<&'static str>, mut headers: Headers) {
    headers.insert(name, id);
}

#[subscriber("q")]
async fn ignored(_: Order, _: State<fn(&str) -> String>, _: Context) {}

#[subscriber("q")]
async fn unit((): ()) {}

pub(super) fn main() {}
