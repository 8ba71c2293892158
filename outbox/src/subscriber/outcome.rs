//! What a handler's result means.

use std::borrow::Cow;
use std::time::Duration;

use super::failure::HandlerError;
use crate::error::BoxError;
use crate::extract::Context;

/// What a handler says about its delivery, as a return value.
///
/// Most handlers never name this type: `()` is an ack, and an `Err` asks the retry strategy.
#[must_use = "return it: if it is dropped, it has no effect, and the message is acked (under `Manual` rejected)"]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Done: the row is deleted.
    Ack,
    /// Failed: the retry strategy decides.
    Nack,
    /// Failed for good, for this reason: no retry. The reason goes into the note of the dead
    /// letter.
    Reject(Cow<'static, str>),
    /// Not now: due again after this long. Neither an attempt nor a delivery is spent.
    Snooze(Duration),
}

impl Outcome {
    /// Makes a rejection with its reason.
    pub fn reject(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Reject(reason.into())
    }
}

/// The result of a run of a handler.
pub type HandlerResult = Result<Outcome, HandlerError>;

/// What a handler may return: `()`, an [`Outcome`], or a `Result` of one of these with any
/// error that converts into a boxed one. So `anyhow`, `eyre` and `String` work with `?`.
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    label = "not something a handler can return",
    note = "return `()`, `outbox::Outcome`, or `Result<(), E>` where `E` converts into `Box<dyn Error + Send + Sync>`"
)]
pub trait IntoOutcome {
    /// Converts the returned value.
    ///
    /// # Errors
    /// Returns the handler's own error, with its kind.
    fn into_outcome(self) -> HandlerResult;

    /// Whether the value says something about the delivery under
    /// [`AckPolicy::Manual`](crate::AckPolicy::Manual). `()` does not.
    fn is_word(&self) -> bool {
        true
    }
}

/// Takes what the handler of this delivery returned.
pub(crate) fn returned<T: IntoOutcome>(value: T, context: &Context) -> HandlerResult {
    context.delivery().says(value.is_word());
    value.into_outcome()
}

impl IntoOutcome for () {
    fn into_outcome(self) -> HandlerResult {
        Ok(Outcome::Ack)
    }

    fn is_word(&self) -> bool {
        false
    }
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> HandlerResult {
        Ok(self)
    }
}

impl<T: IntoOutcome, E: Into<BoxError>> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> HandlerResult {
        match self {
            Ok(value) => value.into_outcome(),
            Err(error) => Err(HandlerError::of(error)),
        }
    }

    fn is_word(&self) -> bool {
        self.as_ref().map_or(true, T::is_word)
    }
}
