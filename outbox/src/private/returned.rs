//! `publish = ".."`: what the handler returns becomes a message of its ack.

use serde::Serialize;

use crate::error::BoxError;
use crate::extract::Context;
pub use crate::publish::QueueFor;
use crate::publish::{Outgoing, QueueName};
use crate::subscriber::{HandlerError, HandlerResult, Outcome};

/// What can be returned as a message. It is a trait of its own for the sake of its error text.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be published",
    label = "does not implement `serde::Serialize`",
    note = "with `publish`, a handler returns a value that implements `serde::Serialize`, an `Option` or a `Vec` of such values, or `outbox::Outgoing`; in a `Result` if it can fail"
)]
pub trait Message {
    /// Serialises the value.
    fn outgoing(&self, queue: &str) -> Outgoing;
}

#[diagnostic::do_not_recommend]
impl<T: Serialize> Message for T {
    fn outgoing(&self, queue: &str) -> Outgoing {
        Outgoing::new(queue, self)
    }
}

/// Tells a type that is published as it is from a `Result`, `Option` or `Vec` that an alias
/// hides from the macro. It works because an inherent constant is found before a trait's.
pub struct Named<T>(std::marker::PhantomData<T>);

/// The constant of all other types.
pub trait NoWrapper {
    /// Whether the type is a `Result`, `Option` or `Vec`.
    const WRAPS: bool = false;
}

impl<T> NoWrapper for Named<T> {}

impl<T, E> Named<Result<T, E>> {
    /// It is.
    pub const WRAPS: bool = true;
}

impl<T> Named<Option<T>> {
    /// It is.
    pub const WRAPS: bool = true;
}

impl<T> Named<Vec<T>> {
    /// It is.
    pub const WRAPS: bool = true;
}

/// The name of the queue of the option.
pub fn queue(queue: &impl QueueName) -> String {
    queue.name().to_owned()
}

/// Notes that publishing says nothing about the delivery. An error does.
pub fn published(result: HandlerResult, ctx: &Context) -> HandlerResult {
    ctx.delivery().says(result.is_err());
    result
}

/// Publishes a value to the queue of the option.
pub fn value<T: Message, Q: QueueFor<T>>(ctx: &Context, queue: &Q, value: &T) -> HandlerResult {
    outgoing(ctx, value.outgoing(queue.name()))
}

/// Publishes a message with its own queue and options.
pub fn outgoing(ctx: &Context, message: Outgoing) -> HandlerResult {
    match ctx.publisher().collect(message) {
        Ok(()) => Ok(Outcome::Ack),
        Err(refused) => Err(HandlerError::new(HandlerError::PUBLISH, refused)),
    }
}

/// Publishes one value or none.
pub fn option<T>(value: Option<T>, each: impl FnOnce(T) -> HandlerResult) -> HandlerResult {
    value.map_or(Ok(Outcome::Ack), each)
}

/// Publishes several values, in order.
pub fn vec<T>(values: Vec<T>, each: impl FnMut(T) -> HandlerResult) -> HandlerResult {
    values.into_iter().try_for_each(each_ok(each)).map(|()| Outcome::Ack)
}

fn each_ok<T>(
    mut each: impl FnMut(T) -> HandlerResult,
) -> impl FnMut(T) -> Result<(), HandlerError> {
    move |value| each(value).map(drop)
}

/// Publishes the returned value, or returns the handler's error.
pub fn result<T, E: Into<BoxError>>(
    returned: Result<T, E>,
    value: impl FnOnce(T) -> HandlerResult,
) -> HandlerResult {
    returned.map_err(HandlerError::of).and_then(value)
}
