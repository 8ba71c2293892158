//! The `#[subscriber]` attribute of the `outbox` crate, which re-exports it.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod errors;
mod subscriber;
mod suggest;

use proc_macro::TokenStream;

/// Makes an `async fn` the handler of one queue or several.
///
/// The fn stays as it is and can be called as before. Beside it there is
/// `name::subscriber()`, which gives the `outbox::Subscriber`, and every app of
/// the binary finds it by itself.
///
/// ```ignore
/// #[subscriber("orders", retry = Exponential(initial = "1s", max_attempts = 5), max_deliveries = 5)]
/// async fn confirm(order: Order, State(mailer): State<Mailer>) -> Result<(), MailError> {
///     mailer.send(order.id).await
/// }
/// ```
///
/// # Arguments
///
/// First the queue: `"orders"`, `["orders", "payments"]`, or any expression that
/// implements `IntoQueues`. Then options, each at most once:
///
/// | option | value |
/// |---|---|
/// | `retry` | a strategy, see below |
/// | `ack` | `NackOnError`, `RejectOnError`, `AckFirst` or `Manual` |
/// | `max_deliveries`, `max_workers`, `fetch_batch` | a count, at least 1 |
/// | `lease_ttl`, `min_poll`, `max_poll`, `timeout` | a duration |
///
/// A duration is a string like `"500ms"` or `"1m 30s"`, or an expression of type
/// `Duration`. Literals are checked when compiling, other expressions when the
/// app starts.
///
/// # Retry
///
/// - `Exponential(initial = "1s", multiplier = 2.0, max_delay = "5m")`; without
///   parentheses the default of every subscriber
/// - `Linear(initial = "1s", step = "1s", max_delay = "5m")`
/// - `Constant("5s")`
/// - `Delays(["1s", "10s", "1m"])`
/// - `NoRetry`
/// - any other expression that implements `RetryStrategy`
///
/// Those with delays also take `jitter = 0.2`, `max_attempts = 10` and
/// `max_total_delay = "1h"`.
///
/// # The fn
///
/// Its first parameter is the payload: a type that implements
/// `serde::Deserialize`, or the raw bytes as `&[u8]` or `Bytes` (any type of that
/// name). The others implement `FromContext`: `State<T>`, `Context`, `Headers`
/// and your own. It returns what implements `IntoOutcome`.
///
/// The attribute adds a type of the fn's name, so a module or a type of that
/// name cannot stand beside it.
#[proc_macro_attribute]
pub fn subscriber(args: TokenStream, item: TokenStream) -> TokenStream {
    subscriber::attribute(args.into(), &item.into()).into()
}
