//! Suspects: rows that used up their deliveries because their processes died, and that may not be
//! what killed them. Each runs once more, alone if that is possible: see `quiet`.

use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::backoff::Backoff;
use super::handle::handle;
use super::inbox::Ended;
use super::later::settle_until;
use super::lease::margin;
use super::quiet::{self, Alone, Marked};
use super::run::Run;
use super::send;
use super::settlement::Settlement;
use super::settling::Settling;
use super::solitude::{self, Solitude};
use super::threads::{self, ThreadSlot};
use super::{Few, Reader, Shared};
use crate::extract::{Context, Delivery};
use crate::store::{Lease, Store, new_alone_token};
use crate::subscriber::AckPolicy;
use crate::telemetry::{TARGET, warn};

/// How long to wait for the answer on a row that did not start, once the drain's time is over.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Runs a suspect with no other handler beside it, under a token that says so. If another handler
/// does not end, it runs beside others, under its own token.
pub(super) async fn alone<S: Store>(
    shared: &Shared<S>,
    reader: &Arc<Reader>,
    mut run: Run<'_>,
) -> Few<Box<Settling>> {
    let not_yet = reader.inbox.ended(1);
    let waits = async { Some((threads::place(reader, 1).await?, shared.quiet.alone().await)) };
    let Some((place, alone)) = shared.stop.run_until_cancelled(waits).await.flatten() else {
        return smallvec![run.given_back()];
    };
    let Some(alone) = alone else {
        return Box::pin(beside(shared, reader, run, place, not_yet)).await;
    };
    let (since, ttl) = (Instant::now(), reader.subscriber.options.lease_ttl);
    if let Some(settlement) = run.expired(shared, reader, since) {
        return smallvec![run.unstarted(settlement)];
    }
    let deadline = run.context.lease_deadline();
    let held = run.settling.lease;
    let marked = Lease { token: new_alone_token(), ..held };
    // A row that takes the server down with it is to be found under its mark.
    let store = shared.store.durable();
    let marking = quiet::mark(&store, held, marked, deadline, &shared.stop, alone);
    // When the drain's time is over, it is not known whether the mark was set.
    let marking = shared.cut_off.run_until_cancelled(marking);
    let alone = match marking.await.unwrap_or(Marked::Unknown) {
        Marked::Lost => return smallvec![run.settling.ruled(Settlement::Lost)],
        Marked::Not => return Box::pin(beside(shared, reader, run, place, not_yet)).await,
        Marked::Alone(alone) => Some(alone),
        Marked::Unknown => None,
    };
    run.settling.lease = marked;
    let Some(alone) = alone else {
        return smallvec![take_back_both(shared, reader, run.settling, held).await];
    };
    let now = Instant::now();
    let has_expired = run.expired(shared, reader, now).is_some();
    if has_expired || shared.stop.is_cancelled() || now + margin(ttl) > since + ttl {
        drop(alone);
        // The row must not be found under the mark, because nothing of it ran. The last try may
        // have begun a lease just now. What has expired is found to have at its next claim.
        run.settling.until(now + ttl);
        return smallvec![run.settling.unstarted()];
    }
    // Counted before anybody else may start.
    let running = shared.quiet.count(1);
    drop(not_yet);
    let ended = started(shared, reader, run, since, place, alone).await;
    drop(running);
    ended
}

/// Takes back a row that is not to start, when it is not known which of two tokens its lease has:
/// the one it was held under, or its mark. It must not be found under the mark, because nothing of
/// it ran.
///
/// Gives the row back under the first token, and returns what gives it back under the mark.
async fn take_back_both<S: Store>(
    shared: &Shared<S>,
    reader: &Reader,
    mut marked: Box<Settling>,
    held: Lease,
) -> Box<Settling> {
    // The last try may have begun a lease just now.
    marked.until(Instant::now() + reader.subscriber.options.lease_ttl);
    // The mark may still arrive. It finds no row once the first token is gone, so that goes first:
    // what goes by the mark does not see a mark that has not committed.
    let first = marked.under(held).unstarted();
    // If it has arrived, one of these is enough. Whatever keeps the answer to the first away may
    // last as long as the lease.
    let under_mark = [*marked.under(marked.lease).unstarted()];
    let meanwhile = async {
        let mut backoff = Backoff::of_errors();
        loop {
            // First of all: where the other is answered at once, nothing else is sent.
            sleep(backoff.after(true)).await;
            let landed = send::in_time(&shared.store, &under_mark).await;
            if landed.is_ok_and(|landed| landed == [true]) {
                return under_mark[0].announce();
            }
        }
    };
    let ends = async {
        shared.cut_off.cancelled().await;
        sleep(LAST_WORD).await;
    };
    tokio::select! {
        _ = settle_until(&shared.store, vec![*first], shared.over.clone()) => {}
        () = meanwhile => {}
        () = ends => {}
    }
    marked.unstarted()
}

/// Runs it under the mark, which it has had since that time.
async fn started<S: Store>(
    shared: &Shared<S>,
    reader: &Arc<Reader>,
    mut run: Run<'_>,
    since: Instant,
    place: ThreadSlot,
    alone: Alone,
) -> Few<Box<Settling>> {
    let options = &reader.subscriber.options;
    let (marked, ttl) = (run.settling.lease, options.lease_ttl);
    let Delivery { row, claimed_at, .. } = run.context.delivery();
    let delivery = Delivery::new(row.clone(), &reader.common, *claimed_at, since + ttl);
    run.context = Context::new(delivery);
    let solitude = Arc::new(Solitude::new());
    run.solitude = Some(Arc::clone(&solitude));
    let within = run.solitude.clone();
    run.holding = Some(shared.leases.hold_in(marked, since, ttl, &run.context, within));
    let first = options.max_deliveries.unwrap_or_default().saturating_add(1);
    let again = run.context.deliveries().saturating_sub(first);
    let ends = Ending {
        solitude: Arc::clone(&solitude),
        gone_by: (options.ack == AckPolicy::AckFirst).then_some(since + ttl),
        hurry: Arc::clone(&shared.leases.hurry),
        subscriber: reader.subscriber.name(),
        context: run.context.clone(),
    };
    let ends = ends.after(solitude::lasts(ttl, again), alone);
    let mut settled =
        Box::pin(handle(shared, reader, smallvec![run], place, Instant::now(), None)).await;
    if !solitude.is_over()
        && let Some(one) = settled.first_mut()
    {
        one.alone = Some(ends);
    }
    settled
}

/// What ends the solitude of a row that takes long.
struct Ending {
    solitude: Arc<Solitude>,
    /// For a row that is acked first: when its lease is over. Acked before, it is gone, and cannot be
    /// condemned.
    gone_by: Option<Instant>,
    hurry: Arc<Notify>,
    subscriber: &'static str,
    context: Context,
}

impl Ending {
    /// Ends the solitude after this time, on a task of its own: the handler may block its thread,
    /// even after its lease is lost and no longer extended. Dropping the handle ends what is left.
    fn after(self, time: Duration, alone: Alone) -> AbortOnDropHandle<()> {
        let ends = async move {
            sleep(time).await;
            let runs = if let Some(end) = self.gone_by {
                drop(timeout_at(end, self.solitude.ended()).await);
                true
            } else {
                tokio::select! {
                    ended = self.solitude.end(&self.hurry) => ended,
                    () = self.context.delivery().watch.lost() => true,
                }
            };
            let (subscriber, row_id) = (self.subscriber, self.context.id());
            if runs {
                warn!(
                    target: TARGET, subscriber, row_id,
                    "a row that runs alone, because its deliveries ended without a result, takes \
                     long; others start beside it"
                );
            } else {
                warn!(
                    target: TARGET, subscriber, row_id,
                    "a row has run alone, because its deliveries ended without a result, and what \
                     came of it is not written yet; others start"
                );
            }
            drop(alone);
        };
        let ends = AbortOnDropHandle::new(tokio::spawn(ends));
        super::leave_to_others();
        ends
    }
}

/// Runs a suspect beside others: nothing is concluded from how it ends.
async fn beside<S: Store>(
    shared: &Shared<S>,
    reader: &Arc<Reader>,
    run: Run<'_>,
    place: ThreadSlot,
    not_yet: Ended<'_>,
) -> Few<Box<Settling>> {
    // Whoever waited until this one need not be alone was woken just now.
    super::leave_to_others();
    let others = shared.quiet.beside_others(1);
    let Some(_running) = shared.stop.run_until_cancelled(others).await else {
        return smallvec![run.given_back()];
    };
    drop(not_yet);
    let now = Instant::now();
    if let Some(settlement) = run.kept_back(shared, reader, now) {
        return smallvec![run.unstarted(settlement)];
    }
    handle(shared, reader, smallvec![run], place, now, None).await
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// It is acked first. If that takes long, it may still be found under its mark.
    #[tokio::test(start_paused = true)]
    async fn a_row_that_is_acked_first_is_alone_until_it_is_gone_or_its_lease_is_over() {
        let quiet = Arc::<quiet::Quiet>::default();
        for acked in [false, true] {
            let alone = quiet.alone().await.expect("nobody runs");
            let solitude = Arc::new(Solitude::new());
            let ending = Ending {
                solitude: Arc::clone(&solitude),
                gone_by: Some(Instant::now() + HOUR),
                hurry: Arc::default(),
                subscriber: "s",
                context: Context::of_test("{}"),
            };
            let _ends = ending.after(Duration::from_secs(5), alone);
            assert!(timeout(HOUR / 2, quiet.beside_others(1)).await.is_err());
            if acked {
                solitude.has_ended();
            }
            let time = if acked { Duration::from_secs(1) } else { HOUR };
            assert!(timeout(time, quiet.beside_others(1)).await.is_ok());
        }
    }

    /// Its handler blocks its thread: the loss of its lease does not end it.
    #[tokio::test(start_paused = true)]
    async fn a_row_that_runs_alone_and_has_lost_its_lease_holds_up_no_other_for_ever() {
        let quiet = Arc::<quiet::Quiet>::default();
        let alone = quiet.alone().await.expect("nobody runs");
        let context = Context::of_test("{}");
        let ending = Ending {
            solitude: Arc::new(Solitude::new()),
            gone_by: None,
            hurry: Arc::default(),
            subscriber: "s",
            context: context.clone(),
        };
        let _ends = ending.after(Duration::from_secs(5), alone);
        assert!(timeout(HOUR, quiet.beside_others(1)).await.is_err(), "its lease goes on");
        context.delivery().watch.lose();
        assert!(timeout(HOUR, quiet.beside_others(1)).await.is_ok());
    }
}
