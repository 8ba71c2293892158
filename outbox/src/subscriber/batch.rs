//! Handlers of several messages at once.

use std::collections::HashMap;
use std::ops::Deref;

use uuid::Uuid;

use super::{HandlerError, HandlerResult, IntoOutcome, Outcome, returned};
use crate::error::BoxError;
use crate::extract::Context;

/// The messages of one run, each with its delivery. A handler with the option `batch` takes it
/// as a parameter. If the deliveries do not matter, take `Vec<T>` instead.
///
/// # Examples
/// ```
/// use outbox::{Batch, BatchOutcome, subscriber};
///
/// #[subscriber("clicks", batch = 100, batch_wait = "50ms")]
/// async fn count(clicks: Batch<String>) -> BatchOutcome {
///     let mut outcome = BatchOutcome::default();
///     for click in clicks {
///         if click.message.is_empty() {
///             outcome.set(&click.context, Err::<(), _>("an empty click"));
///         }
///     }
///     outcome // the others are acked
/// }
/// ```
#[derive(Debug, Clone)]
pub struct Batch<T>(pub(crate) Vec<Item<T>>);

/// One message of a [`Batch`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Item<T> {
    /// What was published.
    pub message: T,
    /// Its delivery.
    pub context: Context,
}

impl<T> Deref for Batch<T> {
    type Target = [Item<T>];

    fn deref(&self) -> &[Item<T>] {
        &self.0
    }
}

impl<T> IntoIterator for Batch<T> {
    type Item = Item<T>;
    type IntoIter = std::vec::IntoIter<Item<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Batch<T> {
    type Item = &'a Item<T>;
    type IntoIter = std::slice::Iter<'a, Item<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// What became of each message of a batch. Messages that it does not name are acked.
#[derive(Debug, Default)]
pub struct BatchOutcome(HashMap<Claim, HandlerResult>);

/// A delivery of a row. A batch may hold two deliveries of one row: a crash of the server undoes
/// claims whose commit is not on disk yet, and the row is claimed again.
type Claim = (i64, Option<Uuid>);

fn claim(context: &Context) -> Claim {
    (context.id(), context.delivery().row.acquired_token)
}

impl BatchOutcome {
    /// Sets the outcome of one message, in any form that a handler of one message may return. A
    /// later outcome replaces an earlier one.
    pub fn set(&mut self, context: &Context, outcome: impl IntoOutcome) {
        self.0.insert(claim(context), returned(outcome, context));
    }
}

/// What a handler of batches may return:
/// - `()`, an [`Outcome`] or a `Result` for all messages.
/// - A `Vec` with an outcome for each message, in order.
/// - A [`BatchOutcome`].
#[diagnostic::on_unimplemented(
    message = "a handler of batches cannot return `{Self}`",
    label = "not something a handler of batches can return",
    note = "return `()` or `Result<(), E>` for all messages, `Vec<Outcome>` or `Vec<Result<(), E>>` with one for each, or `outbox::BatchOutcome`"
)]
pub trait IntoOutcomes {
    /// Returns one result for each delivery.
    fn into_outcomes(self, deliveries: &[Context]) -> Vec<HandlerResult>;
}

impl IntoOutcomes for () {
    fn into_outcomes(self, deliveries: &[Context]) -> Vec<HandlerResult> {
        deliveries.iter().map(|context| returned((), context)).collect()
    }
}

impl IntoOutcomes for Outcome {
    fn into_outcomes(self, deliveries: &[Context]) -> Vec<HandlerResult> {
        deliveries.iter().map(|context| returned(self.clone(), context)).collect()
    }
}

impl IntoOutcomes for BatchOutcome {
    fn into_outcomes(mut self, deliveries: &[Context]) -> Vec<HandlerResult> {
        let unnamed = |context| returned(Outcome::Ack, context);
        let of = |context| self.0.remove(&claim(context)).unwrap_or_else(|| unnamed(context));
        deliveries.iter().map(of).collect()
    }
}

impl<T: IntoOutcomes, E: Into<BoxError>> IntoOutcomes for Result<T, E> {
    fn into_outcomes(self, deliveries: &[Context]) -> Vec<HandlerResult> {
        match self {
            Ok(outcomes) => outcomes.into_outcomes(deliveries),
            Err(error) => {
                let error = HandlerError::of(error);
                deliveries.iter().map(|_| Err(error.clone())).collect()
            }
        }
    }
}

impl<T: IntoOutcome> IntoOutcomes for Vec<T> {
    fn into_outcomes(self, deliveries: &[Context]) -> Vec<HandlerResult> {
        let (got, wanted) = (self.len(), deliveries.len());
        if got == wanted {
            return self.into_iter().zip(deliveries).map(|(one, of)| returned(one, of)).collect();
        }
        let why = format!("the handler returned {got} outcomes for {wanted} messages");
        Err::<(), _>(HandlerError::new(HandlerError::RESULTS, why)).into_outcomes(deliveries)
    }
}
