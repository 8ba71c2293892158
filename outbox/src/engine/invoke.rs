//! One delivery, from the claimed row to its settlement.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{self, Poll};

use futures_util::FutureExt;
use tokio::time::{Instant, timeout};
use tracing::{error, warn};

use super::inbox::Job;
use super::judge::{Case, Ruling};
use super::lease::Holding;
use super::settle::{Settlement, Settling, settle};
use super::{Reader, Shared, quiet, transaction};
use crate::extract::{Context, Delivery};
use crate::publish::Collected;
use crate::store::{Before, Store};
use crate::subscriber::{AckPolicy, HandlerError, HandlerFuture, HandlerResult};
use crate::telemetry::TARGET;

/// How a run ended.
enum Ended {
    Result(HandlerResult),
    /// The lease is gone: whatever the handler did, another claim decides.
    LeaseLost,
    CutOff,
}

/// Runs the handler on a claimed row, unless the row must not be run. Returns
/// what is to be written, or nothing when it already is.
///
/// # Cancel safety
/// Dropping it drops the handler; the row comes back when its lease runs out.
pub(crate) async fn deliver<S: Store>(
    shared: &Shared<S>,
    reader: &Arc<Reader>,
    job: Job,
) -> Option<Settling> {
    let options = &reader.subscriber.options;
    if Instant::now() >= job.deadline {
        warn!(
            target: TARGET, subscriber = reader.subscriber.name(), row_id = job.claimed.row.id,
            "a claimed row waited until its lease ran out and was not started; \
             lower `fetch_batch` or raise `lease_ttl`"
        );
        return Some(Settling::unstarted(reader, &job));
    }
    let mut settling = Settling::of(reader, &job);
    let case = || Case {
        row: &job.claimed.row,
        options,
        render: &*shared.render,
        since_claim: job.claimed_at.elapsed(),
    };
    let too_often =
        options.max_deliveries.is_some_and(|max| job.claimed.row.deliveries_count > max);
    if too_often && job.claimed.before != Before::Expired {
        return Some(settling.ruled(case().delivered_too_often()));
    }
    settling.report.dispatched(job.claimed.row.payload.len());
    if options.ack == AckPolicy::AckFirst {
        return at_most_once(shared, reader, &job, settling).await;
    }
    // Held from here on, so that it is extended while it waits to be alone.
    let mut holding = shared.leases.hold(settling.lease, job.claimed_at, options.lease_ttl);
    let alone = if too_often { shared.quiet.alone().await } else { None };
    let _beside = match alone {
        Some(_) => None,
        None => Some(shared.quiet.beside_others().await),
    };
    if alone.is_some() {
        let since = Instant::now();
        let marked = quiet::mark(&shared.store, settling.lease, holding.deadline()).await;
        let Some(marked) = marked else {
            settling.report.ended();
            return Some(settling.ruled(Settlement::Lost));
        };
        settling.lease = marked;
        holding = shared.leases.hold(marked, since, options.lease_ttl);
    }
    let context = context(shared, reader, &job, &holding);
    let ended = run(shared, reader, context.clone(), &holding).await;
    settling.until(holding.deadline());
    drop(holding);
    settling.report.ended();
    let ruling = match ended {
        Ended::Result(result) => case().rule(&context, result),
        Ended::LeaseLost => Ruling::lost(),
        Ended::CutOff => Ruling { settlement: Settlement::Abandon, error: None },
    };
    let ruling = match transaction::end(shared, &context, settling.lease, ruling).await {
        Some(Err(failed)) => case().refused(failed),
        Some(Ok(ruling)) => ruling,
        None => {
            settling.committed();
            return None;
        }
    };
    settling.report.exception_type = ruling.error.map(|error| error.kind().to_owned());
    Some(settling.ruled(ruling.settlement))
}

/// `AckFirst`: the row is gone before the handler starts, so its result can
/// change nothing.
async fn at_most_once<S: Store>(
    shared: &Shared<S>,
    reader: &Reader,
    job: &Job,
    mut settling: Settling,
) -> Option<Settling> {
    let holding = shared.leases.hold(settling.lease, job.claimed_at, job.deadline - job.claimed_at);
    let context = context(shared, reader, job, &holding);
    drop(holding);
    settling.report.ended();
    if settle(&shared.store, vec![settling.ruled(Settlement::Ack { messages: Vec::new() })]).await
        == 0
    {
        return None;
    }
    let _beside = shared.quiet.beside_others().await;
    let _running = Running::count(shared);
    tokio::select! {
        result = guarded(reader, context.clone()) => {
            if let Err(error) = result {
                warn!(
                    target: TARGET, subscriber = reader.subscriber.name(),
                    row_id = job.claimed.row.id, exception_type = error.kind(),
                    "a handler failed on a message that was acked first; it is gone"
                );
            }
        }
        () = shared.cut_off.cancelled() => context.cancelled().cancel(),
    }
    None
}

fn context<S: Store>(
    shared: &Shared<S>,
    reader: &Reader,
    job: &Job,
    holding: &Holding<'_>,
) -> Context {
    Context::new(Delivery {
        row: job.claimed.row.clone(),
        subscriber: reader.subscriber.name(),
        states: Arc::clone(&reader.states),
        deadline: Arc::clone(&holding.shared_deadline),
        cancelled: holding.lost.clone(),
        headers: OnceLock::new(),
        publisher: shared.publisher.clone(),
        collected: (reader.subscriber.options.ack != AckPolicy::AckFirst).then(Collected::default),
        lent: OnceLock::new(),
        threads: Arc::clone(&reader.threads),
        said: OnceLock::new(),
    })
}

async fn run<S: Store>(
    shared: &Shared<S>,
    reader: &Reader,
    context: Context,
    holding: &Holding<'_>,
) -> Ended {
    let _running = Running::count(shared);
    tokio::select! {
        biased;
        () = holding.lost.cancelled() => Ended::LeaseLost,
        result = guarded(reader, context) => Ended::Result(result),
        () = shared.cut_off.cancelled() => {
            // Tasks that the handler spawned watch this one.
            holding.lost.cancel();
            Ended::CutOff
        }
    }
}

/// The handler with its panics and its overlong runs as errors.
async fn guarded(reader: &Reader, context: Context) -> HandlerResult {
    let cancelled = context.cancelled().clone();
    let call = async { Droppable(Some(reader.subscriber.call(context))).await };
    let call = AssertUnwindSafe(call).catch_unwind();
    let ended = match reader.subscriber.options.timeout {
        None => call.await,
        Some(limit) => {
            let Ok(ended) = timeout(limit, call).await else {
                // What the handler started elsewhere watches this.
                cancelled.cancel();
                let text = format!("the handler took longer than its timeout of {limit:?}");
                return Err(HandlerError::new(HandlerError::TIMEOUT, text));
            };
            ended
        }
    };
    ended.unwrap_or_else(|panic| Err(HandlerError::new(HandlerError::PANIC, message(&*panic))))
}

/// A run whose destructors may panic when it is dropped half-way: the delivery
/// is settled all the same.
struct Droppable(Option<HandlerFuture>);

impl Future for Droppable {
    type Output = HandlerResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<HandlerResult> {
        match &mut self.0 {
            Some(run) => run.as_mut().poll(cx),
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

/// Counts a running handler, however it ends.
struct Running<'a>(&'a AtomicUsize);

impl<'a> Running<'a> {
    fn count<S: Store>(shared: &'a Shared<S>) -> Self {
        shared.running.fetch_add(1, Ordering::Relaxed);
        Self(&shared.running)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
