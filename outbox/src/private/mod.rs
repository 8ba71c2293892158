//! What generated code calls. This is not public API: it changes without notice.

pub mod batch;
pub mod returned;

pub use inventory;

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio_util::task::AbortOnDropHandle;

use crate::extract::{Context, FromContext};
use crate::message::{Codec, DecodeError, Encoded, Json, codec};
pub use crate::publish::QueueOf;
pub use crate::subscriber::{Derived, HandlerFuture, KnownFailure, Origin, Registered, Subscriber};
use crate::subscriber::{Failure, Verdict};
use crate::subscriber::{HandlerError, HandlerResult, IntoOutcome, IntoQueues, returned};
use crate::tracking;

/// Makes a subscriber as the macro found it.
pub fn subscriber(
    name: &'static str,
    origin: Origin,
    queues: impl IntoQueues,
    handler: impl Fn(Context) -> HandlerFuture + Send + Sync + 'static,
) -> Subscriber {
    Subscriber::at(name, origin, queues, handler)
}

/// What a payload can be decoded as. It is a trait of its own, so that the compiler says what to
/// do instead of listing implementors of `Deserialize`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the payload of a handler",
    label = "does not implement `serde::Deserialize`",
    note = "derive `serde::Deserialize` for it and for every type inside it; raw bytes are `&[u8]` or `outbox::Bytes`"
)]
pub trait Payload<'a>: Sized {
    /// Decodes the payload.
    ///
    /// # Errors
    /// Kind `decode`.
    fn read(ctx: &'a Context) -> Result<Self, HandlerError>;
}

#[diagnostic::do_not_recommend]
impl<'a, T: Deserialize<'a>> Payload<'a> for T {
    fn read(ctx: &'a Context) -> Result<Self, HandlerError> {
        ctx.decode().map_err(undecodable)
    }
}

#[diagnostic::do_not_recommend]
impl<C: Codec, T: DeserializeOwned> Payload<'_> for Encoded<C, T> {
    fn read(ctx: &Context) -> Result<Self, HandlerError> {
        let kind = ctx.content_type().map_err(undecodable)?;
        let value = codec::encoded::<C, T>(ctx.payload(), kind.as_deref());
        value.map(Self::new).map_err(undecodable)
    }
}

#[diagnostic::do_not_recommend]
impl<'a, T: Deserialize<'a>> Payload<'a> for Json<T> {
    fn read(ctx: &'a Context) -> Result<Self, HandlerError> {
        codec::json(ctx.payload()).map(Self).map_err(undecodable)
    }
}

fn undecodable(error: DecodeError) -> HandlerError {
    HandlerError::new(HandlerError::DECODE, error)
}

/// The names of a queue whose messages a handler of `P` can read.
pub fn queues<P: ?Sized, Q: QueueOf<P>>(queue: &Q) -> Vec<String> {
    queue.names()
}

/// Decodes the payload as a value.
///
/// # Errors
/// Kind `decode`.
pub fn payload<'a, T: Payload<'a>>(ctx: &'a Context) -> Result<T, HandlerError> {
    T::read(ctx)
}

/// Decodes the payload as text, like a `String`. It is copied only if it has to be.
///
/// # Errors
/// Kind `decode`.
pub fn text(ctx: &Context) -> Result<Cow<'_, str>, HandlerError> {
    ctx.decode::<Text<'_>>().map(|Text(text)| text).map_err(undecodable)
}

/// Tries to decode a payload, for a handler of text.
///
/// # Errors
/// Kind `decode`.
pub fn reads_text(ctx: &Context) -> Result<(), HandlerError> {
    text(ctx).map(drop)
}

/// Accepts every payload, for a handler that takes the bytes as they are.
///
/// # Errors
/// None.
pub fn bytes(_: &Context) -> Result<(), HandlerError> {
    Ok(())
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Runs a plain fn on a blocking thread. As many run at once as there are workers. If the
/// delivery is over before the fn ends, the fn runs on. Its context tells it.
///
/// # Errors
/// Returns the error of the fn.
pub async fn blocking(
    ctx: Context,
    handler: impl FnOnce(Context) -> HandlerResult + Send + 'static,
) -> HandlerResult {
    let first = ctx.clone();
    on_thread(&first, move || {
        may_begin(std::slice::from_ref(&ctx))?;
        if ctx.delivery().is_late() { Err(HandlerError::late()) } else { handler(ctx) }
    })
    .await?
}

/// Whether a run that has waited for its thread may still begin.
fn may_begin(deliveries: &[Context]) -> Result<(), HandlerError> {
    if deliveries.iter().all(|one| one.delivery().watch.is_lost()) {
        return Err(HandlerError::of("the lease was lost before the handler could start"));
    }
    Ok(())
}

/// Runs `run` on a blocking thread.
async fn on_thread<T: Send + 'static>(
    first: &Context,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<T, HandlerError> {
    let delivery = first.delivery();
    let loan = Arc::clone(delivery.loan());
    // The thread holds the place: a run that was given up still counts.
    let place = match loan.thread.take_place() {
        Some(place) => Some(place),
        None => Arc::clone(&delivery.common.threads).acquire_owned().await.ok(),
    };
    let span = tracing::Span::current();
    loan.thread.queues();
    let run = tokio::task::spawn_blocking(tracking::carried(move || {
        let _place = place;
        loan.thread.begins();
        span.in_scope(run)
    }));
    // The runtime may have no free thread. A run that is given up before it has one does not
    // begin.
    match AbortOnDropHandle::new(run).await {
        Ok(ended) => Ok(ended),
        Err(failed) => match failed.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(stopped) => Err(HandlerError::of(stopped)),
        },
    }
}

/// Makes another parameter. The future is boxed for two reasons:
/// - The compiler sees that it is `Send` without looking into it. When it looks, it forgets
///   `'static`, and then rejects `State<&'static str>`.
/// - A missing bound is reported only once.
///
/// # Errors
/// Kind `extract`.
pub fn extract<X: FromContext>(ctx: &Context) -> Extracting<'_, X> {
    Box::pin(async {
        X::from_context(ctx)
            .await
            .map_err(|error| HandlerError::or_kind(HandlerError::EXTRACT, error))
    })
}

/// A boxed future of a parameter.
pub type Extracting<'a, X> = Pin<Box<dyn Future<Output = Result<X, HandlerError>> + Send + 'a>>;

/// Returns what makes a result of the returned value. It takes no value itself, so that a missing
/// bound is reported at the type and not at the value.
pub fn outcome<T: IntoOutcome>() -> fn(T, &Context) -> HandlerResult {
    returned
}

/// Reads the verdict and the kind of an error that is an `F`, or a `Box` or an `Arc` of one. These
/// are types of errors of their own.
pub fn known_failure<F: Failure>(
    error: &(dyn std::error::Error + 'static),
) -> Option<(Verdict, &'static str)> {
    let boxed = || error.downcast_ref::<Box<F>>().map(|failure| &**failure);
    let shared = || error.downcast_ref::<Arc<F>>().map(|failure| &**failure);
    let failure = error.downcast_ref::<F>().or_else(boxed).or_else(shared)?;
    Some((failure.verdict(), failure.kind()))
}

/// Boxes one run of a handler.
pub fn run(future: impl Future<Output = HandlerResult> + Send + 'static) -> HandlerFuture {
    Box::pin(future)
}
