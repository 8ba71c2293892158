//! Runs a handler, and rules on what it came to.

use std::pin::pin;
use std::sync::Arc;

use futures_util::poll;
use tokio::time::Instant;
use tracing::Instrument;

use super::guard::guarded;
use super::invoke::{Run, case};
use super::judge::Ruling;
use super::settle::{Settlement, Settling};
use super::{Few, Reader, Shared, at_most_once, transaction};
use crate::extract::Context;
use crate::store::Store;
use crate::subscriber::{AckPolicy, HandlerError, HandlerResult};
use crate::telemetry::RunSpan;
use crate::tracking;

/// How a run ended.
enum Ended {
    Results(Few<HandlerResult>),
    /// The leases are gone: whatever the handler did, other claims decide.
    LeaseLost,
    CutOff,
}

/// Runs the handler and rules on what it came to.
pub(super) async fn handle<S: Store>(
    shared: &Shared<S>,
    reader: &Arc<Reader>,
    runs: Few<Run<'_>>,
) -> Few<Settling> {
    if reader.subscriber.options.ack == AckPolicy::AckFirst {
        at_most_once::run(shared, reader, runs).await;
        return Few::new();
    }
    let mut rulings: Few<Ruling> = match run(shared, reader, &runs).await {
        Ended::Results(results) => {
            let rule = |(run, result): (&Run<'_>, _)| {
                let delivery = run.context.delivery();
                if delivery.watch.is_lost() {
                    return Ruling::lost();
                }
                case(shared, reader, &delivery.row, run.claimed_at).rule(&run.context, result)
            };
            runs.iter().zip(results).map(rule).collect()
        }
        Ended::LeaseLost => runs.iter().map(|_| Ruling::lost()).collect(),
        Ended::CutOff => runs.iter().map(|_| Ruling::of(Settlement::Abandon)).collect(),
    };
    let mut ended: Few<Over> = runs.into_iter().map(Over::from).collect();
    // The run has one, whichever of its messages it was made from.
    let loan = ended.first().and_then(|over| over.context.delivery().loan.get().cloned());
    let mut committed = false;
    if let Some(lent) = loan.as_ref().and_then(|loan| loan.lent.get()) {
        let begun = Instant::now();
        let leases: Vec<_> = ended.iter().map(|over| over.settling.lease).collect();
        match transaction::end(&**lent, shared, &leases, &mut rulings).await {
            Ok(done) => committed = done,
            Err(failed) => {
                let acks = ended.iter_mut().zip(&mut rulings).filter(|(_, ruling)| ruling.is_ack());
                for (over, ruling) in acks {
                    over.settling.unanswered();
                    let row = &over.context.delivery().row;
                    *ruling = case(shared, reader, row, over.claimed_at).refused(failed.clone());
                }
            }
        }
        for over in ended.iter_mut().filter(|over| over.context.delivery().is_sole_writer()) {
            // Its lease has begun anew.
            over.settling.until(begun + reader.subscriber.options.lease_ttl);
        }
    }
    let mut settled = Few::new();
    for (Over { mut settling, .. }, ruling) in ended.into_iter().zip(rulings) {
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
    pub(super) settling: Settling,
    pub(super) context: Context,
    claimed_at: Instant,
}

impl From<Run<'_>> for Over {
    fn from(run: Run<'_>) -> Self {
        let Run { mut settling, holding, context, claimed_at } = run;
        settling.until(context.lease_deadline());
        drop(holding);
        settling.report.ended();
        Self { settling, context, claimed_at }
    }
}

async fn run<S: Store>(shared: &Shared<S>, reader: &Reader, runs: &[Run<'_>]) -> Ended {
    let contexts: Few<_> = runs.iter().map(|run| run.context.clone()).collect();
    if contexts.iter().all(|context| context.delivery().watch.is_lost()) {
        return Ended::LeaseLost;
    }
    let mut call = pin!(call(shared, reader, &contexts));
    let ended = |results: Option<_>| results.map_or(Ended::CutOff, Ended::Results);
    // Many end at once, and need not ask for the loss of their leases.
    if let std::task::Poll::Ready(results) = poll!(call.as_mut()) {
        return ended(results);
    }
    let all_lost = async {
        for context in &contexts {
            context.delivery().watch.lost().await;
        }
    };
    tokio::select! {
        biased;
        () = all_lost => Ended::LeaseLost,
        results = call => ended(results),
    }
}

/// Calls the handler in a span, for a result of each delivery; `None` when the
/// drain's time is over before it ends.
pub(super) async fn call<S: Store>(
    shared: &Shared<S>,
    reader: &Reader,
    contexts: &[Context],
) -> Option<Few<HandlerResult>> {
    let span = RunSpan::start(contexts);
    let results = call_in(&span, shared, reader, contexts).await;
    span.end(results.as_deref());
    results
}

async fn call_in<S: Store>(
    span: &RunSpan,
    shared: &Shared<S>,
    reader: &Reader,
    contexts: &[Context],
) -> Option<Few<HandlerResult>> {
    let limit = reader.subscriber.options.timeout;
    let run = guarded(|| reader.subscriber.call(contexts.into()), limit);
    let run = tracking::handling(contexts, run).instrument(span.span());
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
    for context in contexts {
        context.cancelled().cancel();
    }
    error.map(|error| contexts.iter().map(|_| Err(error.clone())).collect())
}
