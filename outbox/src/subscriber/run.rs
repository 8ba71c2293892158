//! From the deliveries of a run to the handler, through its layers.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{self, Poll};

use futures_util::future::OptionFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use smallvec::{SmallVec, smallvec};
use tokio::sync::{mpsc, oneshot};

use super::layer::{Layer, Next};
use super::{HandlerError, HandlerFuture, HandlerResult, Outcome};
use crate::extract::{Context, Stage};

/// A boxed future of a run over several messages.
pub(crate) type BatchFuture = Pin<Box<dyn Future<Output = Vec<HandlerResult>> + Send>>;

/// One value for each message of a run, which mostly has one.
pub(crate) type Few<T> = SmallVec<[T; 1]>;

/// How a handler is called.
#[derive(Clone)]
pub(super) enum Handler {
    One(Arc<dyn Fn(Context) -> HandlerFuture + Send + Sync>),
    Many(Arc<dyn Fn(Vec<Context>) -> BatchFuture + Send + Sync>),
}

/// A call of a handler. It returns a result for each delivery, in order.
pub(crate) enum Called {
    One(HandlerFuture),
    Many(BatchFuture),
}

impl Future for Called {
    type Output = Few<HandlerResult>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::One(run) => run.as_mut().poll(cx).map(|result| smallvec![result]),
            Self::Many(run) => run.as_mut().poll(cx).map(Few::from_vec),
        }
    }
}

impl Handler {
    /// Calls it on these deliveries, inside the layers.
    pub(super) fn call(&self, layers: &Arc<[Layer]>, mut deliveries: Few<Context>) -> Called {
        match self {
            Self::One(handler) if deliveries.len() == 1 => {
                Called::One(one(handler, layers, deliveries.remove(0)))
            }
            Self::One(handler) => {
                let runs: Vec<_> =
                    deliveries.into_iter().map(|it| one(handler, layers, it)).collect();
                Called::Many(Box::pin(futures_util::future::join_all(runs)))
            }
            Self::Many(handler) if layers.is_empty() => {
                Called::Many(handler(deliveries.into_vec()))
            }
            Self::Many(handler) => {
                let (handler, layers) = (Arc::clone(handler), Arc::clone(layers));
                Called::Many(Box::pin(async move {
                    together(&layers, deliveries.into_vec(), &*handler).await
                }))
            }
        }
    }
}

fn one(
    handler: &Arc<dyn Fn(Context) -> HandlerFuture + Send + Sync>,
    layers: &Arc<[Layer]>,
    delivery: Context,
) -> HandlerFuture {
    if layers.is_empty() {
        return handler(delivery);
    }
    let (handler, layers) = (Arc::clone(handler), Arc::clone(layers));
    let core = move |context: Context| -> HandlerFuture {
        Box::pin(async move {
            let begun = Begun::of(&context);
            let result = handler(context.within()).await;
            begun.0.work().enter(stage_of(&result));
            result
        })
    };
    Box::pin(Next::new(layers, Box::new(core)).run(delivery))
}

/// A delivery that the handler works on. If a layer drops the handler, its thread and its tasks
/// are told by the delivery's token.
struct Begun(Context);

impl Begun {
    fn of(context: &Context) -> Self {
        context.work().enter(Stage::Begun);
        Self(context.clone())
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if self.0.work().stage() == Stage::Begun {
            self.0.cancelled().cancel();
        }
    }
}

/// A delivery that has come through its layers, and where its result goes.
type Arrived = (usize, Context, oneshot::Sender<HandlerResult>);

/// Takes each delivery through the layers on its own. The handler runs once, with those that
/// arrive.
async fn together(
    layers: &Arc<[Layer]>,
    deliveries: Vec<Context>,
    handler: &(dyn Fn(Vec<Context>) -> BatchFuture + Send + Sync),
) -> Vec<HandlerResult> {
    let (count, all) = (deliveries.len(), deliveries.clone());
    let (arrive, mut arrivals) = mpsc::unbounded_channel();
    let mut chains: FuturesUnordered<_> = deliveries
        .into_iter()
        .enumerate()
        .map(|(at, delivery)| chain(layers, at, delivery, arrive.clone()))
        .collect();
    let mut arrived: Vec<Arrived> = Vec::with_capacity(count);
    let mut answered = 0;
    while arrived.len() + answered < count {
        tokio::select! {
            biased;
            Some((at, result)) = chains.next() => {
                all[at].work().answered(result);
                answered += 1;
                // Its layer no longer waits, so the handler must not get it.
                arrived.retain(|(there, ..)| *there != at);
            }
            Some(delivery) = arrivals.recv() => {
                if all[delivery.0].work().answer().is_none() {
                    arrived.push(delivery);
                }
            }
        }
    }
    arrived.sort_by_key(|(at, ..)| *at);
    let (contexts, mut waiting): (Vec<Context>, Vec<_>) =
        arrived.into_iter().map(|(at, context, result)| (context.within(), (at, result))).unzip();
    for context in &contexts {
        context.work().enter(Stage::Begun);
    }
    let mut run = (!contexts.is_empty()).then(|| handler(contexts));
    // The layers' own clocks go on beside the run. It is dropped when all layers have given it
    // up.
    while !chains.is_empty() {
        tokio::select! {
            biased;
            Some((at, result)) = chains.next() => {
                let work = all[at].work();
                let overruled = work.stage() == Stage::Acked && !is_ack(&result);
                // Or the layer did not wait for the handler.
                if overruled || work.stage() == Stage::Begun {
                    all[at].overrule();
                }
                work.answered(result);
            }
            Some(answers) = OptionFuture::from(run.as_mut()) => {
                run = None;
                let answers = counted(answers, waiting.len());
                for (result, (at, to)) in answers.into_iter().zip(waiting.drain(..)) {
                    if all[at].work().stage() == Stage::Begun {
                        all[at].work().enter(stage_of(&result));
                    }
                    // Nobody receives it if a layer gave up waiting: that layer has its own result.
                    let _ = to.send(result);
                }
            }
        }
    }
    let answer = |one: &Context| one.work().answer().cloned();
    all.iter().map(|one| answer(one).unwrap_or_else(|| Err(unheard()))).collect()
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
    let next = Next::new(Arc::clone(layers), Box::new(core));
    // A panic of a layer fails its message alone. A panic of the handler does not come through
    // here.
    let run = AssertUnwindSafe(async { next.run(delivery).await }).catch_unwind();
    (at, run.await.unwrap_or_else(|panic| Err(HandlerError::panicked(panic))))
}

fn stage_of(result: &HandlerResult) -> Stage {
    if is_ack(result) { Stage::Acked } else { Stage::Failed }
}

fn is_ack(result: &HandlerResult) -> bool {
    matches!(result, Ok(Outcome::Ack))
}

/// The results of so many messages. Another number says nothing of any of them.
pub(crate) fn counted(results: Vec<HandlerResult>, messages: usize) -> Vec<HandlerResult> {
    if results.len() == messages {
        return results;
    }
    vec![Err(HandlerError::miscounted(results.len(), messages)); messages]
}

fn unheard() -> HandlerError {
    HandlerError::new(HandlerError::RESULTS, "the handler gave no result for this message")
}
