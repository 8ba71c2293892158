//! Layers: code around the deliveries of handlers.

use std::future::Future;
use std::sync::Arc;

use super::{HandlerFuture, HandlerResult};
use crate::extract::Context;
use crate::redacted::debug_only;

/// A layer, whatever its future.
pub(crate) type Layer = Arc<dyn Fn(Context, Next) -> HandlerFuture + Send + Sync>;

pub(crate) fn erased<F>(layer: impl Fn(Context, Next) -> F + Send + Sync + 'static) -> Layer
where
    F: Future<Output = HandlerResult> + Send + 'static,
{
    Arc::new(move |context, next| Box::pin(layer(context, next)))
}

/// What a layer stands around: the layers inside it, and the handler.
///
/// # Examples
/// A layer sees the delivery, its payload and what becomes of it, and may answer
/// instead of the handler:
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
/// Around a batch each message goes through the layers by itself, and the handler runs once
/// those that come through are all there. So a layer that lets only so many pass at a time,
/// by a lock or a semaphore that it holds over `next.run`, would wait for ever: it has to
/// let go of it before.
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

    /// Goes on with the delivery.
    ///
    /// # Errors
    /// Those of the handler and of the layers inside. A panic or the timeout of
    /// the handler is none: it goes through every layer.
    ///
    /// # Cancel safety
    /// Dropping it drops the handler.
    pub async fn run(self, context: Context) -> HandlerResult {
        let Self { layers, at, handler } = self;
        match layers.get(at).cloned() {
            Some(layer) => layer(context, Self { layers, at: at + 1, handler }).await,
            None => handler(context).await,
        }
    }
}

debug_only!(next: Next => layers = next.layers.len() - next.at);
