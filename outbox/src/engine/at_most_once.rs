//! Runs under `AckFirst`: rows are acked, and only then does their handler run. No message runs
//! twice, and one whose handler fails is gone.

use std::sync::Arc;

use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::extend::tell_of_hanging;
use super::handle::call;
use super::later::settle_until;
use super::lease::LONG;
use super::results::Sender;
use super::run::Run;
use super::settlement::Settlement;
use super::settling::Settling;
use super::{Few, Reader, Shared};
use crate::store::Store;
use crate::subscriber::Outcome;
use crate::telemetry::{TARGET, warn};

/// Acks the rows and runs the handler on those whose acks landed. The rows are gone before the
/// handler starts, so its result can change nothing. Returns the rows that were not acked: because
/// the drain began, because their time was over, or because their acks did not land. `early` takes as
/// many of the first as it has room for before the handler runs.
pub(super) async fn run<S: Store>(
    shared: &Shared<S>,
    reader: &Arc<Reader>,
    runs: Few<Run<'_>>,
    early: Option<&Sender>,
) -> Few<Box<Settling>> {
    let (mut left, rows) = (Few::new(), runs.len());
    let mut begun = Vec::with_capacity(rows);
    // A crash of the server may undo an ack that was not waited for, and the message would run
    // twice.
    let store = shared.store.durable();
    let not_yet = reader.inbox.ended(rows);
    for mut run in runs {
        if shared.stop.is_cancelled() {
            left.push(run.given_back());
            continue;
        }
        // The acks before it may have waited.
        if let Some(expired) = run.expired(shared, reader, Instant::now()) {
            left.push(run.unstarted(expired));
            continue;
        }
        // The ack closes the delivery, so it is dispatched before. One whose ack a drain cuts off has
        // been dispatched too, and counts as lost.
        run.dispatched(reader, Instant::now());
        run.end();
        run.let_go();
        let Run { mut settling, context, solitude, .. } = run;
        // No handler has run yet.
        settling.report.duration = None;
        // An ack that is cut off may still land, in vain if the row was given back before.
        let mut back = settling.under(settling.lease).unstarted();
        // What became of it is told by its ack.
        back.report.started = None;
        let ack = settling.ruled(Settlement::Ack { messages: Vec::new() });
        // Within the drain's time: otherwise its handler would be dropped when it has hardly begun.
        if settle_until(&store, vec![*ack], shared.cut_off.clone()).await == 1 {
            begun.push(context);
            if let Some(solitude) = solitude {
                solitude.has_ended();
            }
        } else if shared.cut_off.is_cancelled() {
            left.push(back);
        } else {
            left.push(back.ruled(Settlement::Lost));
        }
    }
    drop(not_yet);
    if begun.is_empty() {
        return left;
    }
    // Others can have these at once, but what is acked waits for no room. What has expired is in no
    // hurry.
    let is_back = |one: &Settling| matches!(one.settlement, Settlement::Release { .. });
    let (back, mut left): (Few<_>, Few<_>) = left.into_iter().partition(|one| is_back(one));
    left.extend(back.into_iter().filter_map(|one| match early {
        Some(early) => early.offer(one),
        None => Some(one),
    }));
    let _others = reader.inbox.all_but(rows, begun.len());
    // Nobody extends their leases, so nobody else sees that they run for long. A task of its own,
    // because the handler may block its thread.
    let all = begun.clone();
    let _hangs = AbortOnDropHandle::new(tokio::spawn(async move {
        sleep(LONG).await;
        tell_of_hanging(&all);
    }));
    let results = call(shared, reader, &begun).await;
    for (context, result) in begun.iter().zip(results) {
        let (subscriber, row_id) = (reader.subscriber.name(), context.id());
        match result {
            Some(Ok(Outcome::Ack)) => {}
            None => warn!(
                target: TARGET, subscriber, row_id,
                "a handler was dropped by a drain, and its message was acked first; it is gone"
            ),
            Some(Ok(_)) => warn!(
                target: TARGET, subscriber, row_id,
                "a handler put off or refused a message that was acked first; it is gone"
            ),
            Some(Err(error)) => {
                shared.log_error(reader, &context.delivery().row, &error);
                reader.teller.failed_after_ack(context.queue(), error.kind());
                warn!(
                    target: TARGET, subscriber, row_id, exception_type = error.kind(),
                    "a handler failed on a message that was acked first; it is gone"
                );
            }
        }
    }
    left
}
