//! What a handler may ask for beside its payload.

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
pub(crate) use elsewhere::{Elsewhere, Rows};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use lender::Lends;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use lender::{Begun, Open, sealed as lends};
pub(crate) use lent::{Ended, Lender, Lent};
pub(crate) use loan::Loan;
pub use state::{State, States};
pub(crate) use thread::Thread;
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
/// A rejection counts as an error of the handler, of kind `extract`: the retry strategy
/// decides, unless it says by [`OrVerdict`](crate::OrVerdict) or a derived
/// [`Failure`](macro@crate::Failure) what it means. A rejection of your own around that of a
/// [`Tx`](crate::Tx) has it as its source, and puts the message off where that one would.
///
/// One that is made from another hands on what that one says before the start:
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
    /// Why it could not be made.
    type Rejection: Into<BoxError>;

    /// Makes the parameter.
    fn from_context(ctx: &Context) -> impl Future<Output = Result<Self, Self::Rejection>> + Send;

    /// Whether this takes the transaction of the run, as [`Tx`](crate::Tx) does; `false` by
    /// default. It has to be `true` of what has a `Tx` inside: the pool of
    /// [`App::from_env`](crate::App::from_env) has a connection for each, and under `AckFirst`,
    /// where a message is gone before there could be a transaction, the app does not start; nor
    /// does it with a handler of which two parameters take the one that there is.
    const TAKES_TRANSACTION: bool = false;

    /// Whether it is the same whichever message it is made from, as [`State`] is, and the
    /// [`Tx`](crate::Tx) of a run; `false` by default. A handler of batches takes no other beside
    /// its messages, because it is made once a run, from one of them: what differs from message
    /// to message is read from the `context` of each item of a [`Batch`](crate::Batch).
    const SAME_FOR_ALL: bool = false;

    /// Asked once before the app starts, whether the app gives what is needed.
    ///
    /// # Errors
    /// A sentence that says what is missing and how to give it.
    fn check(states: &States) -> Result<(), String> {
        let _ = states;
        Ok(())
    }
}

/// `None` when it cannot be made. But where the database cannot begin a [`Tx`](crate::Tx) the
/// message is put off all the same, or whatever else the rejection says, unless that rejects it: a
/// run without it would be taken for done.
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
        never_there::<X>(states)
    }
}

/// The rejection as a value, so that the handler decides.
impl<X: FromContext<Rejection: Send>> FromContext for Result<X, X::Rejection> {
    type Rejection = Infallible;

    const TAKES_TRANSACTION: bool = X::TAKES_TRANSACTION;
    const SAME_FOR_ALL: bool = X::SAME_FOR_ALL;

    async fn from_context(ctx: &Context) -> Result<Self, Infallible> {
        Ok(X::from_context(ctx).await)
    }

    fn check(states: &States) -> Result<(), String> {
        never_there::<X>(states)
    }
}

/// What may be missing is checked all the same if it is the transaction of another database,
/// which no message would ever have.
fn never_there<X: FromContext>(states: &States) -> Result<(), String> {
    let lent = X::TAKES_TRANSACTION && states.lender().is_some();
    if lent { X::check(states) } else { Ok(()) }
}
