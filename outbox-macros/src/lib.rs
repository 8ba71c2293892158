//! The `#[subscriber]` attribute of the `outbox` crate, which re-exports it.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod errors;
mod subscriber;
mod suggest;

use proc_macro::TokenStream;

/// Registers an `async fn` as a subscriber. The `outbox` crate re-exports this with
/// its full documentation: every option with its default, tested.
///
/// ```ignore
/// #[subscriber("orders", retry = Exponential(initial = "1s", max_attempts = 5), timeout = "30s")]
/// async fn confirm(order: Order, State(mailer): State<Mailer>) -> Result<(), MailError> {
///     mailer.send(order.id).await
/// }
/// ```
#[proc_macro_attribute]
pub fn subscriber(args: TokenStream, item: TokenStream) -> TokenStream {
    subscriber::attribute(args.into(), &item.into()).into()
}
