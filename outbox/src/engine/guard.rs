//! A run of a handler, safe from its panics and bounded in time.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::timeout;
use tracing::error;

use crate::subscriber::{Called, Few, HandlerError, HandlerResult};
use crate::telemetry::TARGET;

/// The results of a run, or the error that ended it as a whole.
pub(super) async fn guarded(
    call: impl FnOnce() -> Called,
    limit: Option<Duration>,
) -> Result<Few<HandlerResult>, HandlerError> {
    // Made in here, because making it may panic too.
    let call = async { Droppable(Some(call())).await };
    let call = AssertUnwindSafe(call).catch_unwind();
    let ended = match limit {
        None => call.await,
        Some(limit) => timeout(limit, call).await.map_err(|_| {
            let text = format!("the handler took longer than its timeout of {limit:?}");
            HandlerError::new(HandlerError::TIMEOUT, text)
        })?,
    };
    ended.map_err(|panic| HandlerError::new(HandlerError::PANIC, message(&*panic)))
}

/// A run whose destructors may panic when it is dropped half-way: the delivery
/// is settled all the same.
struct Droppable(Option<Called>);

impl Future for Droppable {
    type Output = Few<HandlerResult>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Some(run) => Pin::new(run).poll(cx),
            None => Poll::Pending,
        }
    }
}

impl Drop for Droppable {
    fn drop(&mut self) {
        let run = self.0.take();
        if catch_unwind(AssertUnwindSafe(|| drop(run))).is_err() {
            error!(target: TARGET, "a handler panicked while it was dropped");
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("the handler panicked with something other than a text").to_owned()
}
