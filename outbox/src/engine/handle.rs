//! The middle of a delivery: runs the handler, rules on its results, and ends the transaction that
//! was lent to it. What comes out is one [`Settling`] for each row, for the settlers to write.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures_util::{FutureExt as _, poll};
use tokio::time::Instant;
use tracing::Instrument;

use super::guard::guarded;
use super::invoke::case;
use super::judge::{Ruling, rendered};
use super::results::Sender;
use super::run::Run;
use super::settlement::Settlement;
use super::settling::Settling;
use super::threads::ThreadSlot;
use super::{Few, Reader, Shared, at_most_once, transaction};
use crate::extract::{Context, Delivery, Lent};
use crate::message::Row;
use crate::store::Store;
use crate::subscriber::{AckPolicy, HandlerError, HandlerResult, Verdict};
use crate::telemetry::{RunSpan, TARGET, warn};
use crate::tracking;

/// Runs the handler and rules on its results. `now` is when the run begins. `early` takes what is
/// ready before it has ended.
pub(super) async fn handle<S: Store>(
    shared: &Shared<S>,
    reader: &Arc<Reader>,
    mut runs: Few<Run<'_>>,
    place: ThreadSlot,
    now: Instant,
    early: Option<&Sender>,
) -> Few<Box<Settling>> {
    let _lent = runs.first().map(|run| place.lend(&run.context));
    if reader.subscriber.options.ack == AckPolicy::AckFirst {
        return Box::pin(at_most_once::run(shared, reader, runs, early)).await;
    }
    runs.iter_mut().for_each(|run| run.dispatched(reader, now));
    let mut results = pin!(run(shared, reader, &runs)).await.into_iter();
    let rule = |run: &Run<'_>| {
        let (delivery, result) = (run.context.delivery(), results.next().flatten());
        // Another claim decides, whatever the handler did.
        if delivery.watch.is_lost() {
            return Ruling::of(Settlement::Lost);
        }
        let case = case(shared, reader, &delivery.row, delivery.claimed_at);
        match result {
            Some(result) => case.rule(&run.context, result),
            None => case.cut_off(&run.context),
        }
    };
    let mut rulings: Few<Ruling> = runs.iter().map(rule).collect();
    runs.iter_mut().for_each(Run::end);
    // The run has one loan, whichever of its messages it was made from.
    let loan = runs.first().and_then(|run| run.context.delivery().loan.get().cloned());
    let is_lent = loan.as_ref().is_some_and(|loan| loan.lent.get().is_some());
    for (run, ruling) in runs.iter_mut().zip(&rulings) {
        // Somebody may hold a timer for hours. In a transaction the ack does not wait long.
        run.named(shared, !is_lent && ruling.settlement.sets_timers()).await;
    }
    let begun = loan.as_ref().filter(|loan| loan.is_sole_writer()).map(|_| Instant::now());
    let mut committed = false;
    if let Some(lent) = loan.as_ref().and_then(|loan| loan.lent.get()) {
        let end = end_transaction(&**lent, shared, reader, &mut runs, &mut rulings);
        committed = Box::pin(end).await;
        tell_put_off(reader, &rulings);
    }
    runs.iter_mut().for_each(Run::let_go);
    if let Some(begun) = begun {
        // Nobody else could write meanwhile. The leases begin anew when such a transaction ends.
        let ttl = reader.subscriber.options.lease_ttl;
        runs.iter_mut().for_each(|run| run.settling.until(begun + ttl));
    }
    let mut settled = Few::new();
    for (Run { mut settling, context, .. }, ruling) in runs.into_iter().zip(rulings) {
        if committed && ruling.is_ack() {
            settling.committed();
            continue;
        }
        let Delivery { row, claimed_at, .. } = context.delivery();
        if let Some(error) = ruling.error.as_ref().filter(|error| !puts_off(&ruling, error)) {
            shared.log_error(reader, row, error);
        }
        settling.report.put_off = ruling.error.as_ref().is_some_and(HandlerError::is_put_off);
        settling.report.exception_type = ruling.error.map(HandlerError::into_kind);
        settling.ruled_on(ruling.settlement, row, *claimed_at, &shared.render);
        settled.push(settling);
    }
    settled
}

impl<S> Shared<S> {
    /// Logs the text of an error, where the app wants that.
    pub(super) fn log_error(&self, reader: &Reader, row: &Row, error: &HandlerError) {
        if !self.logs_errors || error.is_put_off() {
            return;
        }
        let text = rendered(&*self.render, error).unwrap_or_default();
        warn!(
            target: TARGET, subscriber = reader.subscriber.name(), queue = row.queue, row_id = row.id,
            attempt = row.attempts_count + 1, exception_type = error.kind(), "a handler failed: {text}"
        );
    }
}

/// Whether an error only puts its message off, and so is no failure.
fn puts_off(ruling: &Ruling, error: &HandlerError) -> bool {
    matches!(error.verdict, Some(Verdict::Snooze(_)))
        && matches!(ruling.settlement, Settlement::Release { .. })
}

/// Logs transactions that the database could not begin or commit. That is no failure of the
/// handler, so no attempt tells of it.
fn tell_put_off(reader: &Reader, rulings: &[Ruling]) {
    let errors = rulings.iter().filter_map(|ruling| ruling.error.as_ref());
    let mut put_off = errors.filter_map(|error| Some((error.kind(), error.why_put_off()?)));
    // An error of the user's may be around it, whose text is not for the log.
    if let Some((exception_type, error)) = put_off.next() {
        warn!(
            target: TARGET, subscriber = reader.subscriber.name(), exception_type,
            error = %error, rows = 1 + put_off.count(),
            "a transaction did not begin or did not commit; its messages come back, no attempt \
             spent"
        );
    }
}

/// Ends the transaction that was lent. True when it has committed, with the acks.
async fn end_transaction<S: Store>(
    lent: &dyn Lent,
    shared: &Shared<S>,
    reader: &Reader,
    runs: &mut [Run<'_>],
    rulings: &mut [Ruling],
) -> bool {
    let leases: Vec<_> = runs.iter().map(|run| run.settling.lease).collect();
    let stages: Few<_> = runs.iter().map(|run| run.context.work().stage()).collect();
    let committed = transaction::end(lent, shared, &leases, rulings, &stages).await;
    if let Err(failed) = &committed {
        let acks = runs.iter_mut().zip(rulings).filter(|(_, ruling)| ruling.is_ack());
        for (run, ruling) in acks {
            // The transaction may have committed.
            run.settling.unanswered = true;
            let Delivery { row, claimed_at, .. } = run.context.delivery();
            *ruling = case(shared, reader, row, *claimed_at).refused(failed.clone());
        }
    }
    committed.unwrap_or(false)
}

/// Runs the handler, as [`call`]. There are no results if all leases are lost.
async fn run<S: Store>(
    shared: &Shared<S>,
    reader: &Reader,
    runs: &[Run<'_>],
) -> Few<Option<HandlerResult>> {
    let contexts: Few<_> = runs.iter().map(|run| run.context.clone()).collect();
    if contexts.iter().all(|context| context.delivery().watch.is_lost()) {
        return Few::new();
    }
    let mut call = pin!(call(shared, reader, &contexts));
    // Many handlers end at once, and need not watch for the loss of their leases.
    if let Poll::Ready(results) = poll!(call.as_mut()) {
        return results;
    }
    let all_lost = async {
        for context in &contexts {
            context.delivery().watch.lost().await;
        }
    };
    tokio::select! {
        biased;
        () = all_lost => Few::new(),
        results = call => results,
    }
}

/// Calls the handler in a span, and returns a result for each delivery. It is `None` for those that
/// the drain has cut off. What panics around the handler, such as a layer of `tracing` that is told
/// of the span, fails the run as the handler would.
pub(super) async fn call<S: Store>(
    shared: &Shared<S>,
    reader: &Reader,
    contexts: &[Context],
) -> Few<Option<HandlerResult>> {
    let called = AssertUnwindSafe(in_span(shared, reader, contexts)).catch_unwind().await;
    let panicked = |panic| failed(contexts, &HandlerError::panicked(panic));
    called.unwrap_or_else(|panic| panicked(panic).into_iter().map(Some).collect())
}

async fn in_span<S: Store>(
    shared: &Shared<S>,
    reader: &Reader,
    contexts: &[Context],
) -> Few<Option<HandlerResult>> {
    let span = RunSpan::start(contexts);
    let limit = reader.subscriber.options.timeout;
    let run = guarded(contexts, || reader.subscriber.call(contexts.into()), limit);
    let mut run = pin!(tracking::handling(contexts, run).instrument(span.span()));
    let ended = match poll!(run.as_mut()) {
        Poll::Ready(ended) => Some(ended),
        Poll::Pending => tokio::select! {
            biased;
            ended = run => Some(ended),
            () = shared.cut_off.cancelled() => None,
        },
    };
    let error = match ended {
        Some(Ok(results)) if results.len() == contexts.len() => {
            span.end(Some(&results));
            return results.into_iter().map(Some).collect();
        }
        Some(Ok(results)) => HandlerError::miscounted(results.len(), contexts.len()),
        Some(Err(error)) => error,
        None => {
            give_up(contexts);
            span.end(None);
            return contexts.iter().map(answer).collect();
        }
    };
    let results = failed(contexts, &error);
    span.end(Some(&results));
    results.into_iter().map(Some).collect()
}

/// Whatever the handler started elsewhere watches its context. What a layer has answered stands,
/// whatever became of the other messages of its batch. For the messages whose layers have not
/// answered, the handler's own work no longer counts.
fn give_up(contexts: &[Context]) {
    for context in contexts {
        context.cancelled().cancel();
    }
    for context in contexts.iter().filter(|one| one.work().answer().is_none()) {
        context.work().give_up();
    }
}

/// The results of a run that ended as a whole.
fn failed(contexts: &[Context], error: &HandlerError) -> Few<HandlerResult> {
    give_up(contexts);
    contexts.iter().map(|one| answer(one).unwrap_or_else(|| Err(error.clone()))).collect()
}

/// What a layer has answered.
fn answer(context: &Context) -> Option<HandlerResult> {
    context.work().answer().cloned()
}
