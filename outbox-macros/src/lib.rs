//! The macros of the `outbox` crate, which re-exports them.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod duration;
mod errors;
mod failure;
mod literal;
mod located;
mod subscriber;
mod suggest;

use proc_macro::TokenStream;

/// Registers an `async fn` or a plain `fn` as a subscriber. The `outbox` crate re-exports this
/// with its full documentation: every option with its default, and examples that run.
#[proc_macro_attribute]
pub fn subscriber(args: TokenStream, item: TokenStream) -> TokenStream {
    subscriber::attribute(args.into(), &item.into()).into()
}

/// Lets every variant of an error enum say what it means for the message: `#[retry]`,
/// `#[retry(after = "5m")]`, `#[reject]` or `#[snooze("1m")]`. The `outbox` crate re-exports this
/// with its full documentation.
#[proc_macro_derive(Failure, attributes(retry, reject, snooze))]
pub fn failure(item: TokenStream) -> TokenStream {
    failure::derive(item.into()).into()
}
