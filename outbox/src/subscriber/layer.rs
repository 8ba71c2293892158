//! Layers: code around the deliveries of handlers.

use std::future::Future;
use std::sync::Arc;

use super::{HandlerFuture, HandlerResult};
use crate::extract::Context;
use crate::redacted::debug_only;

/// A layer, whatever the type of its future.
pub(crate) type Layer = Arc<dyn Fn(Context, Next) -> HandlerFuture + Send + Sync>;

pub(crate) fn erased<F>(layer: impl Fn(Context, Next) -> F + Send + Sync + 'static) -> Layer
where
    F: Future<Output = HandlerResult> + Send + 'static,
{
    Arc::new(move |context, next| Box::pin(layer(context, next)))
}

/// What is inside a layer: the further layers, and the handler.
///
/// # Examples
/// A layer sees the delivery, its payload and its result. It may answer instead of the
/// handler:
/// ```
/// use outbox::{Context, HandlerResult, Next, Outcome};
/// use std::time::Duration;
///
/// async fn only_by_day(ctx: Context, next: Next) -> HandlerResult {
///     if ctx.headers().get("urgent").is_none() && is_night() {
///         return Ok(Outcome::Snooze(Duration::from_secs(3600)));
///     }
///     let result = next.run(ctx).await;
///     println!("{result:?}");
///     result
/// }
/// # fn is_night() -> bool { false }
///
/// let app = outbox::App::from_env().layer(only_by_day);
/// ```
/// For a batch, each message goes through the layers by itself. The handler runs once all
/// messages that come through have arrived. So a layer must not hold a lock or a semaphore over
/// `next.run` to limit how many messages pass at a time: it would wait for ever. It has to
/// release the lock first.
pub struct Next {
    layers: Arc<[Layer]>,
    at: usize,
    handler: Handler,
}

type Handler = Box<dyn FnOnce(Context) -> HandlerFuture + Send>;

impl Next {
    pub(super) fn new(layers: Arc<[Layer]>, handler: Handler) -> Self {
        Self { layers, at: 0, handler }
    }

    /// Passes the delivery on to the layers inside and to the handler.
    ///
    /// # Errors
    /// Returns the error of the handler or of a layer inside. A panic of the handler, or its
    /// timeout, is no such error: it goes through every layer.
    ///
    /// # Cancel safety
    /// Dropping the future drops the handler.
    pub async fn run(self, context: Context) -> HandlerResult {
        let Self { layers, at, handler } = self;
        match layers.get(at).cloned() {
            Some(layer) => layer(context, Self { layers, at: at + 1, handler }).await,
            None => handler(context).await,
        }
    }
}

debug_only!(next: Next => layers = next.layers.len() - next.at);
