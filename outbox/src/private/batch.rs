//! Handlers with the option `batch`.

use std::future::Future;
use std::pin::Pin;

use serde::de::DeserializeOwned;

use super::undecodable;
use crate::extract::Context;
use crate::subscriber::{
    Batch, HandlerError, HandlerResult, IntoOutcomes, IntoQueues, Item, Origin, Subscriber,
};

/// A subscriber as the macro found it.
pub fn subscriber<F>(
    name: &'static str,
    origin: Origin,
    queues: impl IntoQueues,
    handler: impl Fn(Vec<Context>) -> F + Send + Sync + 'static,
) -> Subscriber
where
    F: Future<Output = Vec<HandlerResult>> + Send + 'static,
{
    Subscriber::batches_at(name, origin, queues, move |deliveries| run(handler(deliveries)))
}

type Running = Pin<Box<dyn Future<Output = Vec<HandlerResult>> + Send>>;

fn run(future: impl Future<Output = Vec<HandlerResult>> + Send + 'static) -> Running {
    Box::pin(future)
}

/// What a message of a batch can be. A trait of its own for the text of the
/// error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the payload of a handler of batches",
    label = "does not implement `serde::Deserialize`, or borrows",
    note = "derive `serde::Deserialize` for it and for every type inside it, and let it own what it holds"
)]
pub trait Message: Sized {
    /// Reads it.
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

/// The messages that decode; the others have their results already.
pub struct Decoded<T> {
    items: Vec<Item<T>>,
    /// In the order of the deliveries; `None` for those in `items`.
    results: Vec<Option<HandlerResult>>,
}

/// Reads every message; one that does not decode fails alone.
pub fn decode<T: Message>(deliveries: Vec<Context>) -> Decoded<T> {
    let mut items = Vec::with_capacity(deliveries.len());
    let mut results = Vec::with_capacity(deliveries.len());
    for context in deliveries {
        match T::read(&context) {
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
    /// The delivery that other parameters are made from; `None` when nothing
    /// decoded.
    pub fn first(&self) -> Option<Context> {
        self.items.first().map(|item| item.context.clone())
    }

    /// The argument, and what turns the handler's answer into results.
    pub fn split<A: From<Batch<T>>>(self) -> (A, Answered) {
        let deliveries = self.items.iter().map(|item| item.context.clone()).collect();
        let answered = Answered { deliveries, results: self.results };
        (Batch(self.items).into(), answered)
    }
}

impl<T> From<Batch<T>> for Vec<T> {
    fn from(batch: Batch<T>) -> Self {
        batch.into_iter().map(|item| item.message).collect()
    }
}

/// Waits for the handler's answer.
pub struct Answered {
    deliveries: Vec<Context>,
    results: Vec<Option<HandlerResult>>,
}

impl Answered {
    /// The result of every delivery, in order.
    pub fn results<R: IntoOutcomes>(self, returned: R) -> Vec<HandlerResult> {
        let mut answers = returned.into_outcomes(&self.deliveries).into_iter();
        let missing = || HandlerError::new(HandlerError::RESULTS, "the handler gave no result");
        let answer = || answers.next().unwrap_or_else(|| Err(missing()));
        fill(self.results, answer)
    }

    /// The handler could not be called.
    pub fn refused(self, error: &HandlerError) -> Vec<HandlerResult> {
        fill(self.results, || Err(error.clone()))
    }
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
