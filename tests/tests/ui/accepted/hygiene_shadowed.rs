//! The user's own names do not reach the generated code.
#![deny(warnings)]
#![allow(dead_code, non_camel_case_types, non_upper_case_globals)]

mod std {}
mod core {}
mod tokio {}
mod inventory {}
struct Result;
struct Option;
struct Box;
struct Duration;
struct Subscriber;
struct u64;
const Ok: () = ();

#[outbox::subscriber("q", timeout = "5s", retry = Constant("1s"), ack = RejectOnError)]
async fn confirm(_: String, _: outbox::Context) -> outbox::Outcome {
    outbox::Outcome::Ack
}

pub(super) fn main() {
    let _: outbox::Subscriber = confirm::subscriber();
}
