//! Deliveries, from the claimed rows to their settlements.

use std::sync::{Arc, OnceLock};

use tokio::time::Instant;
use tracing::warn;

use super::handle::handle;
use super::inbox::Job;
use super::judge::Case;
use super::lease::Holding;
use super::settle::{Settlement, Settling};
use super::{Reader, Shared, quiet};
use crate::extract::{Context, Delivery, LentOnce};
use crate::publish::Collected;
use crate::store::{Before, Store};
use crate::subscriber::AckPolicy;
use crate::telemetry::TARGET;

/// A delivery that may run.
pub(super) struct Run<'a> {
    pub(super) job: Job,
    pub(super) settling: Settling,
    /// Held from its admission on, so that the lease is extended while the run
    /// waits to begin.
    pub(super) holding: Holding<'a>,
    pub(super) context: Context,
}

/// Runs the handler on claimed rows, one or a batch, but not on those that must
/// not be run. Returns what is to be written.
///
/// # Cancel safety
/// Dropping it drops the handler; the rows come back when their leases run out.
pub(crate) async fn deliver<S: Store>(
    shared: &Shared<S>,
    reader: &Arc<Reader>,
    jobs: Vec<Job>,
) -> Vec<Settling> {
    let (mut settled, mut runs, mut suspects) = (Vec::new(), Vec::with_capacity(1), Vec::new());
    let lent = LentOnce::default();
    for job in jobs {
        match admit(shared, reader, job, &lent) {
            Admitted::Not(settling) => settled.push(settling),
            Admitted::Suspect(run) => suspects.push(run),
            Admitted::Innocent(run) => runs.push(run),
        }
    }
    for suspect in suspects {
        settled.extend(alone(shared, reader, suspect).await);
    }
    if !runs.is_empty() {
        let _beside = shared.quiet.beside_others().await;
        settled.extend(handle(shared, reader, runs).await);
    }
    settled
}

enum Admitted<'a> {
    Not(Settling),
    Innocent(Run<'a>),
    /// Used up its deliveries by leases that ran out; see [`quiet`].
    Suspect(Run<'a>),
}

fn admit<'a, S: Store>(
    shared: &'a Shared<S>,
    reader: &Arc<Reader>,
    job: Job,
    lent: &LentOnce,
) -> Admitted<'a> {
    let options = &reader.subscriber.options;
    let row = &job.claimed.row;
    if Instant::now() >= job.deadline {
        reader.counters.waited_too_long();
        warn!(
            target: TARGET, subscriber = reader.subscriber.name(), row_id = row.id,
            "a claimed row waited until its lease ran out and was not started; \
             lower `fetch_batch` or raise `lease_ttl`"
        );
        return Admitted::Not(Settling::unstarted(reader, &job));
    }
    let mut settling = Settling::of(reader, &job);
    let too_often = options.max_deliveries.is_some_and(|max| row.deliveries_count > max);
    if too_often && job.claimed.before != Before::Expired {
        return Admitted::Not(settling.ruled(case(shared, reader, &job).delivered_too_often()));
    }
    let holding = shared.leases.hold(settling.lease, job.claimed_at, options.lease_ttl);
    // A suspect runs alone.
    let lent = if too_often { LentOnce::default() } else { Arc::clone(lent) };
    let context = context(shared, reader, &job, &holding, lent);
    if context.has_expired(job.claimed_at.elapsed()) {
        return Admitted::Not(settling.ruled(case(shared, reader, &job).expired()));
    }
    settling.report.dispatched(row.payload.len());
    let run = Run { job, settling, holding, context };
    if too_often { Admitted::Suspect(run) } else { Admitted::Innocent(run) }
}

/// Runs a suspect with no other handler beside it, under a token that says so; or
/// beside others, when one of them does not end, under its own.
async fn alone<S: Store>(
    shared: &Shared<S>,
    reader: &Arc<Reader>,
    mut run: Run<'_>,
) -> Vec<Settling> {
    let Some(_alone) = shared.quiet.alone().await else {
        let _beside = shared.quiet.beside_others().await;
        return handle(shared, reader, vec![run]).await;
    };
    let since = Instant::now();
    let marked = quiet::mark(&shared.store, run.settling.lease, run.holding.deadline()).await;
    let Some(marked) = marked else {
        run.settling.report.ended();
        return vec![run.settling.ruled(Settlement::Lost)];
    };
    run.settling.lease = marked;
    run.holding = shared.leases.hold(marked, since, reader.subscriber.options.lease_ttl);
    run.context = context(shared, reader, &run.job, &run.holding, LentOnce::default());
    handle(shared, reader, vec![run]).await
}

pub(super) fn case<'a, S>(shared: &'a Shared<S>, reader: &'a Reader, job: &'a Job) -> Case<'a> {
    Case {
        row: &job.claimed.row,
        options: &reader.subscriber.options,
        render: &*shared.render,
        since_claim: job.claimed_at.elapsed(),
    }
}

fn context<S: Store>(
    shared: &Shared<S>,
    reader: &Reader,
    job: &Job,
    holding: &Holding<'_>,
    lent: LentOnce,
) -> Context {
    Context::new(Delivery {
        row: job.claimed.row.clone(),
        subscriber: reader.subscriber.name(),
        states: Arc::clone(&reader.states),
        deadline: Arc::clone(&holding.shared_deadline),
        cancelled: holding.lost.child_token(),
        headers: OnceLock::new(),
        trail: OnceLock::new(),
        publisher: shared.publisher.clone(),
        collected: (reader.subscriber.options.ack != AckPolicy::AckFirst).then(Collected::default),
        sole_writer: OnceLock::new(),
        lent,
        threads: Arc::clone(&reader.threads),
        said: OnceLock::new(),
    })
}
