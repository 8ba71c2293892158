//! From the deliveries of a run to the handler, through its layers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};

use super::layer::{Layer, Next};
use super::{HandlerError, HandlerFuture, HandlerResult};
use crate::extract::Context;

/// A boxed future of a run over several messages.
pub(crate) type BatchFuture = Pin<Box<dyn Future<Output = Vec<HandlerResult>> + Send>>;

/// How a handler is called.
#[derive(Clone)]
pub(super) enum Handler {
    One(Arc<dyn Fn(Context) -> HandlerFuture + Send + Sync>),
    Many(Arc<dyn Fn(Vec<Context>) -> BatchFuture + Send + Sync>),
}

impl Handler {
    /// Runs it on these deliveries, inside the layers, and returns a result for
    /// each in turn.
    pub(super) fn call(&self, layers: &Arc<[Layer]>, deliveries: Vec<Context>) -> BatchFuture {
        let layers = Arc::clone(layers);
        match self {
            Self::One(handler) => {
                let handler = Arc::clone(handler);
                Box::pin(async move {
                    let mut results = Vec::with_capacity(1);
                    for delivery in deliveries {
                        let run = Arc::clone(&handler);
                        let next = Next::new(Arc::clone(&layers), Box::new(move |ctx| run(ctx)));
                        results.push(next.run(delivery).await);
                    }
                    results
                })
            }
            Self::Many(handler) if layers.is_empty() => handler(deliveries),
            Self::Many(handler) => {
                let handler = Arc::clone(handler);
                Box::pin(async move { together(&layers, deliveries, &*handler).await })
            }
        }
    }
}

/// A delivery that has come through its layers, and where its result goes.
type Arrived = (usize, Context, oneshot::Sender<HandlerResult>);

/// Takes each delivery through the layers on its own; the handler runs once, with
/// those that arrive.
async fn together(
    layers: &Arc<[Layer]>,
    deliveries: Vec<Context>,
    handler: &(dyn Fn(Vec<Context>) -> BatchFuture + Send + Sync),
) -> Vec<HandlerResult> {
    let count = deliveries.len();
    let (arrive, mut arrivals) = mpsc::unbounded_channel();
    let mut chains: FuturesUnordered<_> = deliveries
        .into_iter()
        .enumerate()
        .map(|(at, delivery)| chain(layers, at, delivery, arrive.clone()))
        .collect();
    let mut results: Vec<Option<HandlerResult>> = (0..count).map(|_| None).collect();
    let mut arrived: Vec<Arrived> = Vec::with_capacity(count);
    let mut answered = 0;
    while arrived.len() + answered < count {
        tokio::select! {
            Some((at, result)) = chains.next() => {
                results[at] = Some(result);
                answered += 1;
            }
            Some(delivery) = arrivals.recv() => arrived.push(delivery),
        }
    }
    arrived.sort_by_key(|(at, ..)| *at);
    let (contexts, waiting): (Vec<_>, Vec<_>) =
        arrived.into_iter().map(|(_, context, result)| (context, result)).unzip();
    if !contexts.is_empty() {
        for (result, to) in handler(contexts).await.into_iter().zip(waiting) {
            // A layer that gave up waiting has its own result.
            let _ = to.send(result);
        }
    }
    while let Some((at, result)) = chains.next().await {
        results[at] = Some(result);
    }
    results.into_iter().map(|result| result.unwrap_or_else(|| Err(unheard()))).collect()
}

async fn chain(
    layers: &Arc<[Layer]>,
    at: usize,
    delivery: Context,
    arrive: mpsc::UnboundedSender<Arrived>,
) -> (usize, HandlerResult) {
    let core = move |context| -> HandlerFuture {
        let (to, result) = oneshot::channel();
        let sent = arrive.send((at, context, to));
        Box::pin(async move {
            if sent.is_err() {
                return Err(unheard());
            }
            result.await.unwrap_or_else(|_| Err(unheard()))
        })
    };
    (at, Next::new(Arc::clone(layers), Box::new(core)).run(delivery).await)
}

fn unheard() -> HandlerError {
    HandlerError::new(HandlerError::RESULTS, "the handler gave no result for this message")
}
