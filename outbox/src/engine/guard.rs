//! Runs a handler safe from its panics and bounded in time. A handler is the user's code, and its
//! delivery must be settled whatever that code does.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::timeout;

use crate::extract;
use crate::subscriber::{Called, Few, HandlerError, HandlerResult};
use crate::telemetry::{TARGET, error};

/// The results of a run, or the error that ended the run as a whole.
pub(super) async fn guarded(
    contexts: &[extract::Context],
    call: impl FnOnce() -> Called + Unpin,
    limit: Option<Duration>,
) -> Result<Few<HandlerResult>, HandlerError> {
    let mut run = pin!(Guarded { call: Some(call), run: None });
    let Some(limit) = limit else { return run.await };
    let (mut wait, mut granted) = (limit, Duration::ZERO);
    loop {
        if let Ok(ended) = timeout(wait, run.as_mut()).await {
            return ended;
        }
        // The run has one loan. A `Tx` may have made it meanwhile.
        let loan = contexts.first().and_then(|context| context.delivery().loan.get());
        // Asked before the run is dropped, because its waiting ends with it.
        if loan.is_some_and(|loan| loan.is_beginning()) {
            let text = format!("it did not begin within the handler's {limit:?}");
            return Err(HandlerError::put_off(text));
        }
        // Time that it spent without a thread, or before its transaction had begun, is not the
        // handler's.
        let waited = loan.map_or(Duration::ZERO, |loan| loan.thread.waited() + loan.began_in());
        if waited <= granted {
            let text = format!("the handler took longer than its timeout of {limit:?}");
            return Err(HandlerError::new(HandlerError::TIMEOUT, text));
        }
        (wait, granted) = (waited.saturating_sub(granted), waited);
    }
}

/// A run that may panic when it is made, when it is polled, and in destructors when it is dropped
/// half-way. Its delivery is settled all the same.
struct Guarded<F> {
    call: Option<F>,
    run: Option<Called>,
}

impl<F: FnOnce() -> Called + Unpin> Future for Guarded<F> {
    type Output = Result<Few<HandlerResult>, HandlerError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let step = AssertUnwindSafe(|| {
            if let Some(call) = self.call.take() {
                self.run = Some(call());
            }
            self.run.as_mut().map_or(Poll::Pending, |run| Pin::new(run).poll(cx))
        });
        match catch_unwind(step) {
            Ok(step) => step.map(Ok),
            Err(panic) => Poll::Ready(Err(HandlerError::panicked(panic))),
        }
    }
}

impl<F> Drop for Guarded<F> {
    fn drop(&mut self) {
        let run = self.run.take();
        if catch_unwind(AssertUnwindSafe(|| drop(run))).is_err() {
            error!(target: TARGET, "a handler panicked while it was dropped");
        }
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::subscriber::Outcome;

    /// Waiting for a connection is not the handler's time, and does not lengthen the handler's own.
    #[tokio::test(start_paused = true)]
    async fn a_transaction_that_was_slow_to_begin_takes_no_time_from_its_handler() {
        let second = Duration::from_secs(1);
        for (works, ends) in [(20, 45), (60, 55)] {
            let context = extract::Context::of_test("{}");
            let contexts = [context.clone()];
            let handler = move || -> Called {
                Called::One(Box::pin(async move {
                    let beginning = context.delivery().loan().begin();
                    sleep(25 * second).await;
                    drop(beginning);
                    sleep(works * second).await;
                    Ok(Outcome::Ack)
                }))
            };
            let begun = Instant::now();
            let ran = guarded(&contexts, handler, Some(30 * second)).await;
            assert_eq!((ran.is_ok(), begun.elapsed()), (works == 20, ends * second));
        }
    }
}
