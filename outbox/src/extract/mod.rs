//! What a handler may take besides its payload.

mod context;
mod delivery;
#[cfg(all(feature = "sqlite", feature = "testing"))]
mod elsewhere;
mod headers;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod lender;
mod lent;
mod loan;
mod state;
mod thread;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod tx;
mod watch;
mod work;

use std::convert::Infallible;
use std::future::Future;

pub use context::Context;
pub(crate) use delivery::{Common, Delivery};
#[cfg(all(feature = "sqlite", feature = "testing"))]
pub(crate) use elsewhere::Elsewhere;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use lender::Lends;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use lender::{Begun, Open, sealed as lends};
pub(crate) use lent::{Ended, Lender, Lent};
pub(crate) use loan::Loan;
pub use state::{State, States};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use tx::Tx;
pub(crate) use work::Stage;

use crate::error::BoxError;
use crate::subscriber::HandlerError;

/// A parameter of a handler, made from its delivery.
///
/// # Examples
/// ```
/// use outbox::{Context, FromContext};
///
/// /// The tenant named in a header.
/// struct Tenant(String);
///
/// impl FromContext for Tenant {
///     type Rejection = &'static str;
///
///     async fn from_context(ctx: &Context) -> Result<Self, Self::Rejection> {
///         let name = ctx.headers().get("tenant").ok_or("the message names no tenant")?;
///         Ok(Tenant(name.to_owned()))
///     }
/// }
/// ```
///
/// A rejection counts as an error of the handler, of kind `extract`. The retry strategy decides,
/// unless the rejection says what it means: by [`OrVerdict`](crate::OrVerdict) or a derived
/// [`Failure`](macro@crate::Failure). If a rejection of your own wraps the rejection of a
/// [`Tx`](crate::Tx), make that its source: then it puts the message off where the `Tx` would.
///
/// An extractor that is made from another one hands on the other one's constants and its check:
/// ```
/// use outbox::{Context, FromContext, HandlerError, States, Tx};
///
/// struct Accounts(Tx<sqlx::Postgres>);
///
/// impl FromContext for Accounts {
///     type Rejection = HandlerError;
///     const TAKES_TRANSACTION: bool = Tx::<sqlx::Postgres>::TAKES_TRANSACTION;
///     const SAME_FOR_ALL: bool = Tx::<sqlx::Postgres>::SAME_FOR_ALL;
///
///     async fn from_context(ctx: &Context) -> Result<Self, HandlerError> {
///         Tx::from_context(ctx).await.map(Accounts)
///     }
///
///     fn check(states: &States) -> Result<(), String> {
///         Tx::<sqlx::Postgres>::check(states)
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a handler",
    label = "not an extractor",
    note = "the first parameter is the payload; the others are `State<T>`, `Context`, `Headers`, `Publisher`, `Tx<DB>`, a type that implements `outbox::FromContext`, or an `Option` or a `Result` of one"
)]
pub trait FromContext: Sized + Send {
    /// Why the parameter could not be made.
    type Rejection: Into<BoxError>;

    /// Makes the parameter from its delivery.
    fn from_context(ctx: &Context) -> impl Future<Output = Result<Self, Self::Rejection>> + Send;

    /// Whether this takes the transaction of the run, as [`Tx`](crate::Tx) does; `false` by
    /// default. It has to be `true` for every extractor that has a `Tx` inside. The start goes by
    /// it:
    /// - The pool of [`App::from_env`](crate::App::from_env) gets a connection for each run that
    ///   takes a transaction.
    /// - Under `AckFirst` the app does not start: the message is gone before there could be a
    ///   transaction.
    /// - With two such parameters in one handler the app does not start: a run has one transaction.
    const TAKES_TRANSACTION: bool = false;

    /// Whether this is the same whichever message of a run it is made from, as [`State`] and
    /// [`Tx`](crate::Tx) are; `false` by default. A handler of batches takes no other extractors,
    /// because each is made once a run, from one of the messages. Read what differs from message to
    /// message from the `context` of each item of a [`Batch`](crate::Batch).
    const SAME_FOR_ALL: bool = false;

    /// Checks that the app provides what the parameter needs. It is asked once, before the app
    /// starts.
    ///
    /// # Errors
    /// Returns a sentence that says what is missing and how to provide it.
    fn check(states: &States) -> Result<(), String> {
        let _ = states;
        Ok(())
    }
}

/// `None` if the parameter cannot be made. The exception is a [`Tx`](crate::Tx) that the database
/// cannot begin, because a run without it would be taken for done. Then the rejection counts all
/// the same: the message is put off, or whatever else the rejection says. Only if it rejects the
/// message, the parameter is `None`.
impl<X: FromContext> FromContext for Option<X> {
    type Rejection = HandlerError;

    const TAKES_TRANSACTION: bool = X::TAKES_TRANSACTION;
    const SAME_FOR_ALL: bool = X::SAME_FOR_ALL;

    async fn from_context(ctx: &Context) -> Result<Self, HandlerError> {
        match X::from_context(ctx).await {
            Ok(made) => Ok(Some(made)),
            Err(rejection) => {
                let error = HandlerError::or_kind(HandlerError::EXTRACT, rejection);
                if error.has_no_transaction() { Err(error) } else { Ok(None) }
            }
        }
    }

    fn check(states: &States) -> Result<(), String> {
        check_if_lent::<X>(states)
    }
}

/// The rejection as a value, so that the handler decides about it.
impl<X: FromContext<Rejection: Send>> FromContext for Result<X, X::Rejection> {
    type Rejection = Infallible;

    const TAKES_TRANSACTION: bool = X::TAKES_TRANSACTION;
    const SAME_FOR_ALL: bool = X::SAME_FOR_ALL;

    async fn from_context(ctx: &Context) -> Result<Self, Infallible> {
        Ok(X::from_context(ctx).await)
    }

    fn check(states: &States) -> Result<(), String> {
        check_if_lent::<X>(states)
    }
}

/// A parameter that may be missing is checked only if it is a transaction and there is a
/// database. If that is a database of another kind, no message would ever have the transaction.
fn check_if_lent<X: FromContext>(states: &States) -> Result<(), String> {
    let lent = X::TAKES_TRANSACTION && states.lender().is_some();
    if lent { X::check(states) } else { Ok(()) }
}
