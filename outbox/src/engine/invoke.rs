//! Deliveries, from the claimed rows to their settlements. [`deliver`] admits the rows of a worker
//! and settles those that must not run now. The others wait until they may start and then run in
//! `handle`, as one run. Suspects come last, each by itself: see `suspect`.

use std::pin::pin;
use std::sync::Arc;

use tokio::time::Instant;

use super::handle::handle;
use super::inbox::Job;
use super::judge::{Case, is_too_often};
use super::lease;
use super::quiet::Running;
use super::results::Sender;
use super::run::Run;
use super::settling::Settling;
use super::suspect;
use super::threads::{self, ThreadSlot};
use super::{Few, Reader, Shared};
use crate::extract::{Context, Delivery, Loan};
use crate::message::Row;
use crate::store::{Claimed, Store};

/// Runs the handler on claimed rows, one or a batch, but not on rows that must not run at this
/// moment. Returns what is to be written.
///
/// `early` takes the settlements that are ready before the other rows have run: the leases of
/// settled rows are no longer extended.
///
/// A future is moved in full before it is polled, for every message. So what is rare is boxed, and
/// what is not rare is pinned where it is made.
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
            Err(settling) => settled.push(settling),
            // It used up its deliveries, but other rows may be to blame; see `suspect`.
            Ok((run, true)) => suspects.push(run),
            Ok((run, false)) => runs.push(run),
        }
    }
    if !runs.is_empty() {
        let late = hand_over(early, reader, rows, &mut settled).await;
        let _others = reader.inbox.all_but(rows, runs.len());
        let admitted = (!late).then_some(now);
        let ended = pin!(together(shared, reader, runs, loan, admitted, early)).await;
        settled.extend(ended);
    }
    // Last: a suspect may take as long as it likes, and meanwhile nobody else could have the
    // others.
    for suspect in suspects {
        hand_over(early, reader, rows, &mut settled).await;
        // Where nothing is written yet, the one before would keep it waiting.
        settled.iter_mut().for_each(|one| one.alone = None);
        if shared.stop.is_cancelled() {
            settled.push(suspect.given_back());
            continue;
        }
        let _others = reader.inbox.all_but(rows, 1);
        settled.extend(Box::pin(suspect::alone(shared, reader, suspect)).await);
    }
    settled
}

/// Runs these rows beside others. `admitted` is the time of their admission, or `None` if they have
/// waited since.
async fn together<S: Store>(
    shared: &Shared<S>,
    reader: &Arc<Reader>,
    mut runs: Few<Run<'_>>,
    loan: Option<Arc<Loan>>,
    admitted: Option<Instant>,
    early: Option<&Sender>,
) -> Few<Box<Settling>> {
    let rows = runs.len();
    let Some(Turn { place, running: _running, waited }) = pin!(turn(shared, reader, rows)).await
    else {
        return runs.into_iter().map(Run::given_back).collect();
    };
    let (mut settled, admitted) = (Few::new(), admitted.filter(|_| !waited));
    let mut now = admitted.unwrap_or_else(Instant::now);
    let mut waited = admitted.is_none();
    while waited {
        runs = still_held(shared, reader, runs, now, &mut settled);
        if runs.is_empty() {
            return settled;
        }
        waited = hand_over(early, reader, rows, &mut settled).await;
        now = Instant::now();
    }
    let _others = reader.inbox.all_but(rows, runs.len());
    if let Some(loan) = loan {
        loan.share(runs.iter().map(|run| run.context.delivery()));
    }
    let ended = pin!(handle(shared, reader, runs, place, now, early)).await;
    settled.extend(ended);
    settled
}

/// What a run waits for before it begins.
struct Turn<'a> {
    place: ThreadSlot,
    running: Running<'a>,
    waited: bool,
}

/// Waits until these rows may start beside others. `None` when there is no place for them, or the
/// drain has begun.
async fn turn<'a, S>(shared: &'a Shared<S>, reader: &Reader, these: usize) -> Option<Turn<'a>> {
    // A run that need not wait does not ask twice whether it may start.
    if let (Some(place), Some(running)) = (threads::free(reader), shared.quiet.count_beside(these))
    {
        return Some(Turn { place, running, waited: false });
    }
    let waits = async {
        let _not_yet = reader.inbox.ended(these);
        let place = threads::place(reader, these).await?;
        let running = shared.quiet.beside_others(these).await;
        Some(Turn { place, running, waited: true })
    };
    shared.stop.run_until_cancelled(Box::pin(waits)).await.flatten()
}

/// Hands settlements over early. True when this may have taken time. None of the worker's rows runs
/// meanwhile.
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

/// The rows that may still start. Rows whose lease or time was over before they could start are
/// settled without the others of their batch. Once the drain has begun, no row starts.
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

/// The run of this row, and whether the row is a suspect. `Err` is what becomes of a row that must
/// not run now.
fn admit<'a, S: Store>(
    shared: &'a Shared<S>,
    reader: &Arc<Reader>,
    job: Job,
    loan: Option<&Arc<Loan>>,
    now: Instant,
) -> Result<(Run<'a>, bool), Box<Settling>> {
    let options = &reader.subscriber.options;
    let settling = Settling::of(reader, &job);
    let Job { claimed: Claimed { row, .. }, claimed_at, deadline } = job;
    let case = case(shared, reader, &row, claimed_at);
    if settling.guilty {
        return Err(settling.ruled(case.delivered_too_often()));
    }
    if now + lease::margin(options.lease_ttl) > deadline {
        reader.waited_too_long(row.id);
        return Err(settling.unstarted());
    }
    let too_often = is_too_often(options, &row);
    if row.has_expired(now - claimed_at) {
        return Err(settling.ruled(case.expired()));
    }
    let context = Context::new(Delivery::new(row, &reader.common, claimed_at, deadline));
    // A suspect runs alone, so it does not share the loan.
    if let Some(loan) = loan.filter(|_| !too_often) {
        let _ = context.delivery().loan.set(Arc::clone(loan));
    }
    let begun = deadline - options.lease_ttl;
    let holding = shared.leases.hold(settling.lease, begun, options.lease_ttl, &context);
    Ok((Run { settling, holding: Some(holding), context, solitude: None }, too_often))
}

pub(super) fn case<'a, S>(
    shared: &'a Shared<S>,
    reader: &'a Reader,
    row: &'a Row,
    claimed_at: Instant,
) -> Case<'a> {
    Case { row, options: &reader.subscriber.options, render: &*shared.render, claimed_at }
}
