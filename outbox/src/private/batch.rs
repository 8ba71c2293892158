//! Handlers with the option `batch`.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::returned::published;
use super::{may_begin, on_thread, undecodable};
use crate::error::BoxError;
use crate::extract::Context;
use crate::message::{Codec, Encoded, Json};
use crate::subscriber::{
    Batch, HandlerError, HandlerResult, IntoOutcomes, IntoQueues, Item, Origin, Subscriber, counted,
};

/// Makes a subscriber as the macro found it.
pub fn subscriber<F>(
    name: &'static str,
    origin: Origin,
    queues: impl IntoQueues,
    handler: impl Fn(Vec<Context>) -> F + Send + Sync + 'static,
) -> Subscriber
where
    F: Future<Output = Vec<HandlerResult>> + Send + 'static,
{
    Subscriber::batches_at(name, origin, queues, move |deliveries| Box::pin(handler(deliveries)))
}

/// What a message of a batch can be. It is a trait of its own for the sake of its error text.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the payload of a handler of batches",
    label = "does not implement `serde::Deserialize`, or borrows",
    note = "derive `serde::Deserialize` for it and for every type inside it, and let it own what it holds"
)]
pub trait Message: Sized {
    /// Decodes the payload.
    ///
    /// # Errors
    /// Kind `decode`.
    fn read(ctx: &Context) -> Result<Self, HandlerError>;
}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned> Message for T {
    fn read(ctx: &Context) -> Result<Self, HandlerError> {
        ctx.decode().map_err(undecodable)
    }
}

#[diagnostic::do_not_recommend]
impl<C: Codec, T: DeserializeOwned> Message for Encoded<C, T> {
    fn read(ctx: &Context) -> Result<Self, HandlerError> {
        super::payload(ctx)
    }
}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned> Message for Json<T> {
    fn read(ctx: &Context) -> Result<Self, HandlerError> {
        super::payload(ctx)
    }
}

/// The messages that decode. The others have their results already.
pub struct Decoded<T> {
    items: Vec<Item<T>>,
    /// In the order of the deliveries. `None` for the messages in `items`.
    results: Vec<Option<HandlerResult>>,
}

/// Tries to decode a message.
///
/// # Errors
/// Kind `decode`.
pub fn reads<T: Message>(ctx: &Context) -> Result<(), HandlerError> {
    T::read(ctx).map(drop)
}

/// The delivery from which a plain fn's other parameters are made.
#[must_use]
pub fn first_of(deliveries: &[Context]) -> Option<&Context> {
    let first = deliveries.first()?;
    // By `Decoded::split`.
    first.delivery().loan().sorts_out.store(true, Ordering::Relaxed);
    Some(first)
}

/// Decodes every message. A message that does not decode fails alone.
pub fn decode<T: Message>(deliveries: Vec<Context>) -> Decoded<T> {
    each_read(deliveries, T::read)
}

/// Takes every message as it is.
pub fn bytes(deliveries: Vec<Context>) -> Decoded<Bytes> {
    each_read(deliveries, |ctx| Ok(ctx.payload_bytes()))
}

fn each_read<T>(
    deliveries: Vec<Context>,
    read: fn(&Context) -> Result<T, HandlerError>,
) -> Decoded<T> {
    let mut items = Vec::with_capacity(deliveries.len());
    let mut results = Vec::with_capacity(deliveries.len());
    for context in deliveries {
        let read = catch_unwind(AssertUnwindSafe(|| read(&context)));
        match read.unwrap_or_else(|panic| Err(HandlerError::panicked(panic))) {
            Ok(message) => {
                items.push(Item { message, context });
                results.push(None);
            }
            Err(error) => results.push(Some(Err(error))),
        }
    }
    Decoded { items, results }
}

impl<T> Decoded<T> {
    /// The delivery from which other parameters are made. `None` if nothing decoded.
    #[must_use]
    pub fn first(&self) -> Option<Context> {
        let first = self.items.first()?;
        first_of(slice::from_ref(&first.context)).cloned()
    }

    /// Returns the argument, and what turns the handler's answer into results. A message whose time
    /// is over by now is left out, and its next claim finds that.
    ///
    /// # Errors
    /// Returns the results if nothing is left.
    pub fn split<A: From<Batch<T>>>(mut self) -> Result<(A, Answered), Vec<HandlerResult>> {
        // Whoever waits from now on waits for all.
        if let Some(first) = self.items.first() {
            first.context.delivery().loan().sorts_out.store(false, Ordering::Relaxed);
        }
        let mut places = self.results.iter_mut().filter(|place| place.is_none());
        self.items.retain(|item| {
            let (place, is_late) = (places.next(), item.context.delivery().is_late());
            if let Some(place) = place.filter(|_| is_late) {
                *place = Some(Err(HandlerError::late()));
            }
            !is_late
        });
        if self.items.is_empty() {
            return Err(self.results());
        }
        let deliveries = self.items.iter().map(|item| item.context.clone()).collect();
        let answered = Answered { deliveries, results: self.results };
        Ok((Batch(self.items).into(), answered))
    }

    /// Returns the results if no message is left for the handler.
    #[must_use]
    pub fn results(self) -> Vec<HandlerResult> {
        fill(self.results, || Err(missing()))
    }

    /// Returns the results if the handler could not be called.
    #[must_use]
    pub fn refused(self, error: &HandlerError) -> Vec<HandlerResult> {
        fill(self.results, || Err(error.clone()))
    }
}

impl<T> From<Batch<T>> for Vec<T> {
    fn from(batch: Batch<T>) -> Self {
        batch.into_iter().map(|item| item.message).collect()
    }
}

/// What turns the handler's answer into results.
pub struct Answered {
    deliveries: Vec<Context>,
    results: Vec<Option<HandlerResult>>,
}

impl Answered {
    /// Returns the result of every delivery, in order.
    pub fn results<R: IntoOutcomes>(self, returned: R) -> Vec<HandlerResult> {
        let answers = returned.into_outcomes(&self.deliveries);
        let mut answers = counted(answers, self.deliveries.len()).into_iter();
        fill(self.results, || answers.next().unwrap_or_else(|| Err(missing())))
    }

    /// Returns the results if the handler could not be called.
    pub fn refused(self, error: &HandlerError) -> Vec<HandlerResult> {
        fill(self.results, || Err(error.clone()))
    }
}

fn missing() -> HandlerError {
    HandlerError::new(HandlerError::RESULTS, "the handler gave no result")
}

fn fill(
    results: Vec<Option<HandlerResult>>,
    mut answer: impl FnMut() -> HandlerResult,
) -> Vec<HandlerResult> {
    results.into_iter().map(|result| result.unwrap_or_else(&mut answer)).collect()
}

/// As [`super::outcome`].
pub fn outcomes<R: IntoOutcomes>() -> fn(Answered, R) -> Vec<HandlerResult> {
    Answered::results::<R>
}

/// As [`super::blocking`]. A run takes one thread, however many messages it has.
pub async fn blocking(
    deliveries: Vec<Context>,
    handler: impl FnOnce(Vec<Context>) -> Vec<HandlerResult> + Send + 'static,
) -> Vec<HandlerResult> {
    let Some(first) = deliveries.first().cloned() else {
        return Vec::new();
    };
    let count = deliveries.len();
    let run = move || may_begin(&deliveries).map(|()| handler(deliveries));
    let ended = on_thread(&first, run).await.flatten();
    ended.unwrap_or_else(|stopped| vec![Err(stopped); count])
}

/// Returns the results if the plain fn could not be called.
pub fn refused(deliveries: &[Context], error: &HandlerError) -> Vec<HandlerResult> {
    vec![Err(error.clone()); deliveries.len()]
}

/// For `publish`: each message publishes its own value with its own ack, in order.
pub fn each<T>(
    answered: Answered,
    values: Vec<T>,
    mut one: impl FnMut(Context, T) -> HandlerResult,
) -> Vec<HandlerResult> {
    let (got, wanted) = (values.len(), answered.deliveries.len());
    if got != wanted {
        let why = format!(
            "with `publish` the handler returns a value for each message, in turn; it returned \
             {got} for {wanted} messages"
        );
        return answered.refused(&HandlerError::new(HandlerError::RESULTS, why));
    }
    let deliveries = answered.deliveries.iter().cloned();
    let published = |(ctx, value): (Context, _)| published(one(ctx.clone(), value), &ctx);
    let results: Vec<_> = deliveries.zip(values).map(published).collect();
    let mut results = results.into_iter();
    fill(answered.results, || results.next().unwrap_or_else(|| Err(missing())))
}

/// As [`each`], for a handler that can fail as a whole.
pub fn each_of<T, E: Into<BoxError>>(
    answered: Answered,
    returned: Result<Vec<T>, E>,
    one: impl FnMut(Context, T) -> HandlerResult,
) -> Vec<HandlerResult> {
    match returned {
        Ok(values) => each(answered, values, one),
        Err(error) => answered.refused(&HandlerError::of(error)),
    }
}
