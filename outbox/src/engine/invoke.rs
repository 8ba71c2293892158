//! Deliveries, from the claimed rows to their settlements.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use super::handle::handle;
use super::inbox::Job;
use super::judge::{Case, is_too_often};
use super::later::settle_until;
use super::lease;
use super::quiet::{self, Alone, Marked, Running};
use super::results::Sender;
use super::run::Run;
use super::settlement::Settlement;
use super::settling::Settling;
use super::solitude::{self, Solitude};
use super::threads::{self, ThreadSlot};
use super::{Few, Reader, Shared};
use crate::extract::{Context, Delivery, Loan};
use crate::message::Row;
use crate::planted::planted;
use crate::store::{Claimed, Lease, Store, new_alone_token};
use crate::subscriber::AckPolicy;
use crate::telemetry::TARGET;

/// How long it is waited for the word on a row that did not start, when the drain's time is over.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Runs the handler on claimed rows, one or a batch, but not on those that must
/// not be run at this moment. Returns what is to be written.
///
/// `early` takes what is to be written of some before the others have run: their leases
/// are extended no more.
///
/// A future is moved in full before it is polled, for every message: so what is rare
/// is boxed, and what is not is pinned where it is made.
///
/// # Cancel safety
/// Dropping it drops the handler; the rows come back when their leases run out.
pub(crate) async fn deliver<S: Store>(
    shared: &Shared<S>,
    reader: &Arc<Reader>,
    jobs: Few<Job>,
    now: Instant,
    early: Option<&Sender>,
) -> Few<Box<Settling>> {
    let (mut settled, mut runs, mut suspects) = (Few::new(), Few::new(), Vec::new());
    let rows = jobs.len();
    let loan = (rows > 1).then(Arc::<Loan>::default);
    for job in jobs {
        match admit(shared, reader, job, loan.as_ref(), now) {
            Admitted::Not(settling) => settled.push(settling),
            Admitted::Suspect(run) => suspects.push(run),
            Admitted::Innocent(run) => runs.push(run),
        }
    }
    if !runs.is_empty() {
        let late = hand_over(early, reader, rows, &mut settled).await;
        let ended = pin!(together(shared, reader, runs, loan, (!late).then_some(now))).await;
        if settled.is_empty() {
            settled = ended;
        } else {
            settled.extend(ended);
        }
    }
    // Last: one of them may take as long as it likes, and nobody else can have the others.
    for suspect in suspects {
        hand_over(early, reader, rows, &mut settled).await;
        if shared.stop.is_cancelled() {
            settled.push(suspect.given_back());
            continue;
        }
        settled.extend(Box::pin(alone(shared, reader, suspect)).await);
    }
    settled
}

/// Runs these, one or a batch, beside others. `admitted` is when, unless they have waited since.
async fn together<S: Store>(
    shared: &Shared<S>,
    reader: &Arc<Reader>,
    mut runs: Few<Run<'_>>,
    loan: Option<Arc<Loan>>,
    admitted: Option<Instant>,
) -> Few<Box<Settling>> {
    let Some(Turn { place, running: _running, waited }) =
        pin!(turn(shared, reader, runs.len())).await
    else {
        return runs.into_iter().map(Run::given_back).collect();
    };
    let mut settled = Few::new();
    let now = admitted.filter(|_| !waited).unwrap_or_else(Instant::now);
    if waited || admitted.is_none() {
        runs = still_held(shared, reader, runs, now, &mut settled);
        if runs.is_empty() {
            return settled;
        }
    }
    runs.iter_mut().for_each(|run| run.dispatched(reader, now));
    if let Some(loan) = loan {
        loan.share(runs.iter().map(|run| &*run.context.delivery().row));
    }
    let ended = pin!(handle(shared, reader, runs, place)).await;
    if settled.is_empty() {
        return ended;
    }
    settled.extend(ended);
    settled
}

/// What a run waits for before it begins.
struct Turn<'a> {
    place: ThreadSlot,
    running: Running<'a>,
    waited: bool,
}

/// The turn of these to start beside others; `None` when there is no place for them, or
/// the drain has begun.
async fn turn<'a, S>(shared: &'a Shared<S>, reader: &Reader, these: usize) -> Option<Turn<'a>> {
    // What does not wait does not ask twice whether it may start.
    if let (Some(place), Some(running)) = (threads::free(reader), shared.quiet.count_beside(these))
    {
        return Some(Turn { place, running, waited: false });
    }
    let waits = async {
        let place = threads::place(reader, these).await?;
        let running = shared.quiet.beside_others(these).await;
        Some(Turn { place, running, waited: true })
    };
    shared.stop.run_until_cancelled(Box::pin(waits)).await.flatten()
}

/// True when it may have waited. None of the worker's rows runs meanwhile.
async fn hand_over(
    early: Option<&Sender>,
    reader: &Reader,
    rows: usize,
    settled: &mut Few<Box<Settling>>,
) -> bool {
    let Some(early) = early.filter(|_| !settled.is_empty()) else { return false };
    for settling in settled.drain(..) {
        early.send_while(settling, || reader.inbox.ended(rows)).await;
    }
    true
}

/// Those whose leases or whose time were over before they could start do not start with the
/// others of their batch; once the drain has begun, none does.
fn still_held<'a, S>(
    shared: &Shared<S>,
    reader: &Reader,
    runs: Few<Run<'a>>,
    now: Instant,
    settled: &mut Few<Box<Settling>>,
) -> Few<Run<'a>> {
    let mut held = Few::new();
    for run in runs {
        match run.kept_back(shared, reader, now) {
            None => held.push(run),
            Some(settlement) => settled.push(run.unstarted(settlement)),
        }
    }
    held
}

enum Admitted<'a> {
    Not(Box<Settling>),
    Innocent(Run<'a>),
    /// Used up its deliveries, and was not the one to fail; see [`quiet`].
    Suspect(Run<'a>),
}

fn admit<'a, S: Store>(
    shared: &'a Shared<S>,
    reader: &Arc<Reader>,
    job: Job,
    loan: Option<&Arc<Loan>>,
    now: Instant,
) -> Admitted<'a> {
    let options = &reader.subscriber.options;
    let settling = Settling::of(reader, &job);
    let Job { claimed: Claimed { row, .. }, claimed_at, deadline } = job;
    let case = case(shared, reader, &row, claimed_at);
    if settling.guilty {
        return Admitted::Not(settling.ruled(case.delivered_too_often()));
    }
    if now + lease::margin(options.lease_ttl) > deadline && !planted("no-deadline-check") {
        reader.waited_too_long(row.id);
        return Admitted::Not(settling.unstarted());
    }
    let too_often = is_too_often(options, &row);
    if row.has_expired(now - claimed_at) {
        return Admitted::Not(settling.ruled(case.expired()));
    }
    let context = Context::new(Delivery::new(row, &reader.common, claimed_at, deadline));
    // A suspect runs alone.
    if let Some(loan) = loan.filter(|_| !too_often) {
        let _ = context.delivery().loan.set(Arc::clone(loan));
    }
    let begun = deadline - options.lease_ttl;
    let holding = shared.leases.hold(settling.lease, begun, options.lease_ttl, &context);
    let ttl = options.lease_ttl;
    let run = Run { settling, holding: Some(holding), context, claimed_at, ttl, solitude: None };
    if too_often { Admitted::Suspect(run) } else { Admitted::Innocent(run) }
}

/// Runs a suspect with no other handler beside it, under a token that says so; or
/// beside others, when one of them does not end, under its own.
async fn alone<S: Store>(
    shared: &Shared<S>,
    reader: &Arc<Reader>,
    mut run: Run<'_>,
) -> Few<Box<Settling>> {
    let waits = async { Some((threads::place(reader, 1).await?, shared.quiet.alone().await)) };
    let Some((place, alone)) = shared.stop.run_until_cancelled(waits).await.flatten() else {
        return smallvec![run.given_back()];
    };
    let Some(alone) = alone else { return Box::pin(beside(shared, reader, run, place)).await };
    let (since, ttl) = (Instant::now(), reader.subscriber.options.lease_ttl);
    if let Some(settlement) = run.expired(shared, reader, since) {
        return smallvec![run.unstarted(settlement)];
    }
    let deadline = run.context.lease_deadline();
    let held = run.settling.lease;
    let marked = Lease { token: new_alone_token(), ..held };
    let marking = quiet::mark(&shared.store, held, marked, deadline, &shared.stop, alone);
    // When the drain's time is over, it is not known.
    let marking = shared.cut_off.run_until_cancelled(marking);
    let alone = match marking.await {
        Some(Marked::Lost) => return smallvec![run.settling.ruled(Settlement::Lost)],
        Some(Marked::Not) => return Box::pin(beside(shared, reader, run, place)).await,
        Some(Marked::Alone(alone)) => Some(alone),
        Some(Marked::Unknown) | None => None,
    };
    let unknown = alone.is_none();
    run.settling.lease = marked;
    let too_late = shared.stop.is_cancelled() || Instant::now() + lease::margin(ttl) > since + ttl;
    let Some(alone) = alone.filter(|_| !too_late) else {
        // It must not be found under that token: nothing of it ran. The last try may have
        // begun a lease just now.
        run.settling.until(Instant::now() + ttl);
        if unknown {
            // Or it arrives yet: in vain where the row has the other token no more. Before the
            // other one, which does not see what has not committed.
            let _not_yet = reader.inbox.ended(1);
            let other = run.settling.under(held).unstarted();
            let ends = async {
                shared.cut_off.cancelled().await;
                sleep(LAST_WORD).await;
            };
            tokio::select! {
                _ = settle_until(&shared.store, vec![*other], shared.over.clone()) => {}
                () = ends => {}
            }
        }
        return smallvec![run.settling.unstarted()];
    };
    // Before anybody else may start.
    let _running = shared.quiet.count(1);
    let row = run.context.delivery().row.clone();
    run.context = Context::new(Delivery::new(row, &reader.common, run.claimed_at, since + ttl));
    let solitude = Arc::new(Solitude::new());
    run.holding = Some(shared.leases.hold_alone(marked, since, ttl, &run.context, &solitude));
    run.solitude = Some(Arc::clone(&solitude));
    run.dispatched(reader, Instant::now());
    let options = &reader.subscriber.options;
    let first = options.max_deliveries.unwrap_or_default().saturating_add(1);
    let again = run.context.deliveries().saturating_sub(first);
    let ends = Ending {
        // A row that is gone cannot be condemned.
        solitude: (options.ack != AckPolicy::AckFirst).then_some(solitude),
        hurry: Arc::clone(&shared.leases.hurry),
        subscriber: reader.subscriber.name(),
        context: run.context.clone(),
    };
    let _ends = ends.after(solitude::lasts(ttl, again), alone);
    Box::pin(handle(shared, reader, smallvec![run], place)).await
}

/// What ends the solitude of a row that takes long.
struct Ending {
    solitude: Option<Arc<Solitude>>,
    hurry: Arc<Notify>,
    subscriber: &'static str,
    context: Context,
}

impl Ending {
    /// On a task of its own: the handler may block its thread, also after its lease is lost and
    /// goes on no more. With the handle goes what is left of it.
    fn after(self, time: Duration, alone: Alone) -> AbortOnDropHandle<()> {
        let ends = async move {
            sleep(time).await;
            if let Some(solitude) = &self.solitude {
                tokio::select! {
                    () = solitude.end(&self.hurry) => {}
                    () = self.context.delivery().watch.lost() => {}
                }
            }
            warn!(
                target: TARGET, subscriber = self.subscriber, row_id = self.context.id(),
                "a row that runs alone, because its deliveries ended without a word, takes long; \
                 others start beside it"
            );
            drop(alone);
        };
        let ends = AbortOnDropHandle::new(tokio::spawn(ends));
        super::leave_to_others();
        ends
    }
}

/// Runs a suspect beside others: nothing is concluded from it.
async fn beside<S: Store>(
    shared: &Shared<S>,
    reader: &Arc<Reader>,
    mut run: Run<'_>,
    place: ThreadSlot,
) -> Few<Box<Settling>> {
    let others = shared.quiet.beside_others(1);
    let Some(_running) = shared.stop.run_until_cancelled(others).await else {
        return smallvec![run.given_back()];
    };
    let now = Instant::now();
    if let Some(settlement) = run.kept_back(shared, reader, now) {
        return smallvec![run.unstarted(settlement)];
    }
    run.dispatched(reader, now);
    handle(shared, reader, smallvec![run], place).await
}

pub(super) fn case<'a, S>(
    shared: &'a Shared<S>,
    reader: &'a Reader,
    row: &'a Row,
    claimed_at: Instant,
) -> Case<'a> {
    Case { row, options: &reader.subscriber.options, render: &*shared.render, claimed_at }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    /// It blocks its thread: to lose its lease does not end it.
    #[tokio::test(start_paused = true)]
    async fn a_row_that_runs_alone_and_has_lost_its_lease_holds_up_no_other_for_ever() {
        let (quiet, hour) = (Arc::<quiet::Quiet>::default(), Duration::from_secs(3600));
        let alone = quiet.alone().await.expect("nobody runs");
        let context = Context::of_test("{}");
        let ending = Ending {
            solitude: Some(Arc::new(Solitude::new())),
            hurry: Arc::default(),
            subscriber: "s",
            context: context.clone(),
        };
        let _ends = ending.after(Duration::from_secs(5), alone);
        assert!(timeout(hour, quiet.beside_others(1)).await.is_err(), "its lease goes on");
        context.delivery().watch.lose();
        assert!(timeout(hour, quiet.beside_others(1)).await.is_ok());
    }
}
