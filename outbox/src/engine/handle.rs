//! Runs a handler, and rules on what it came to.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::Instant;
use tracing::Instrument;

use super::guard::guarded;
use super::inbox::Job;
use super::invoke::{Run, case};
use super::judge::Ruling;
use super::settle::{Settlement, Settling};
use super::{Reader, Shared, SoleWriter, at_most_once, transaction};
use crate::extract::Context;
use crate::store::Store;
use crate::subscriber::{AckPolicy, HandlerError, HandlerResult};
use crate::telemetry::RunSpan;
use crate::tracking;

/// How a run ended.
enum Ended {
    Results(Vec<HandlerResult>),
    /// The leases are gone: whatever the handler did, other claims decide.
    LeaseLost,
    CutOff,
}

/// Runs the handler and rules on what it came to.
pub(super) async fn handle<S: Store>(
    shared: &Shared<S>,
    reader: &Arc<Reader>,
    runs: Vec<Run<'_>>,
) -> Vec<Settling> {
    if reader.subscriber.options.ack == AckPolicy::AckFirst {
        at_most_once::run(shared, reader, runs).await;
        return Vec::new();
    }
    let mut rulings = match run(shared, reader, &runs).await {
        Ended::Results(results) => {
            let rule = |(run, result): (&Run<'_>, _)| {
                if run.holding.lost.is_cancelled() {
                    return Ruling::lost();
                }
                case(shared, reader, &run.job).rule(&run.context, result)
            };
            runs.iter().zip(results).map(rule).collect()
        }
        Ended::LeaseLost => runs.iter().map(|_| Ruling::lost()).collect(),
        Ended::CutOff => runs.iter().map(|_| Ruling::of(Settlement::Abandon)).collect::<Vec<_>>(),
    };
    let mut ended: Vec<_> = runs.into_iter().map(Over::from).collect();
    let leases: Vec<_> = ended.iter().map(|over| over.settling.lease).collect();
    let begun = Instant::now();
    // The run has one, whichever of its messages it was made from.
    let lent = ended.first().and_then(|over| over.context.delivery().lent.get().cloned());
    let committed = match lent {
        None => false,
        Some(lent) => match transaction::end(&*lent, shared, &leases, &mut rulings).await {
            Ok(committed) => committed,
            Err(failed) => {
                let acks = ended.iter_mut().zip(&mut rulings).filter(|(_, ruling)| ruling.is_ack());
                for (over, ruling) in acks {
                    over.settling.unanswered();
                    *ruling = case(shared, reader, &over.job).refused(failed.clone());
                }
                false
            }
        },
    };
    let mut settled = Vec::with_capacity(ended.len());
    for (over, ruling) in ended.into_iter().zip(rulings) {
        let mut settling = over.settling;
        if over.context.delivery().sole_writer.get().is_some_and(SoleWriter::is) {
            // Its lease has begun anew.
            settling.until(begun + reader.subscriber.options.lease_ttl);
        }
        if committed && ruling.is_ack() {
            settling.committed();
            continue;
        }
        settling.report.exception_type = ruling.error.map(|error| error.kind().to_owned());
        settled.push(settling.ruled(ruling.settlement));
    }
    settled
}

/// A run that has ended: its lease is extended no more.
pub(super) struct Over {
    pub(super) job: Job,
    pub(super) settling: Settling,
    pub(super) context: Context,
}

impl From<Run<'_>> for Over {
    fn from(run: Run<'_>) -> Self {
        let Run { job, mut settling, holding, context } = run;
        settling.until(holding.deadline());
        settling.report.ended();
        Self { job, settling, context }
    }
}

async fn run<S: Store>(shared: &Shared<S>, reader: &Reader, runs: &[Run<'_>]) -> Ended {
    let sole_writer = SoleWriter::default();
    for run in runs {
        run.holding.while_not(&sole_writer);
        let _ = run.context.delivery().sole_writer.set(sole_writer.clone());
    }
    let _running = Running::count(shared, runs.len());
    let all_lost = async {
        for run in runs {
            run.holding.lost.cancelled().await;
        }
    };
    let contexts = runs.iter().map(|run| run.context.clone()).collect();
    tokio::select! {
        biased;
        () = all_lost => Ended::LeaseLost,
        results = call(shared, reader, contexts) => results.map_or(Ended::CutOff, Ended::Results),
    }
}

/// Calls the handler in a span, for a result of each delivery; `None` when the
/// drain's time is over before it ends.
pub(super) async fn call<S: Store>(
    shared: &Shared<S>,
    reader: &Reader,
    contexts: Vec<Context>,
) -> Option<Vec<HandlerResult>> {
    let span = RunSpan::start(&contexts);
    let results = call_in(&span, shared, reader, contexts).await;
    span.end(results.as_deref());
    results
}

async fn call_in<S: Store>(
    span: &RunSpan,
    shared: &Shared<S>,
    reader: &Reader,
    contexts: Vec<Context>,
) -> Option<Vec<HandlerResult>> {
    let limit = reader.subscriber.options.timeout;
    let run = guarded(|| reader.subscriber.call(contexts.clone()), limit);
    let run = tracking::handling(&contexts, run).instrument(span.span());
    let error = tokio::select! {
        biased;
        results = run => match results {
            Ok(results) if results.len() == contexts.len() => return Some(results),
            Ok(results) => {
                let text = format!("{} results for {} messages", results.len(), contexts.len());
                Some(HandlerError::new(HandlerError::RESULTS, text))
            }
            Err(error) => Some(error),
        },
        () = shared.cut_off.cancelled() => None,
    };
    // What the handler started elsewhere watches its context.
    for context in &contexts {
        context.cancelled().cancel();
    }
    error.map(|error| contexts.iter().map(|_| Err(error.clone())).collect())
}

/// Counts running handlers, however they end.
pub(super) struct Running<'a> {
    all: &'a AtomicUsize,
    these: usize,
}

impl<'a> Running<'a> {
    pub(super) fn count<S: Store>(shared: &'a Shared<S>, these: usize) -> Self {
        shared.running.fetch_add(these, Ordering::Relaxed);
        Self { all: &shared.running, these }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.these, Ordering::Relaxed);
    }
}
