//! Leases live as long as their handlers: extended in batches, on a task of
//! their own.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use slab::Slab;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout_at};
use tracing::warn;
use uuid::Uuid;

use super::Shared;
use super::solitude::Solitude;
use crate::extract::Context;
use crate::store::{Extend, Lease, Store};
use crate::telemetry::{Sinks, TARGET};

/// More than the store itself waits for an answer.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The leases of running handlers.
#[derive(Default)]
pub(crate) struct Leases {
    held: Mutex<Slab<Held>>,
    /// Who is told when they cannot be extended.
    sinks: Sinks,
    /// When the lease task last ran; see `watchdog`.
    looked_after: Mutex<Option<Instant>>,
    /// Has the lease task look before its time.
    pub(super) hurry: Arc<Notify>,
}

struct Held {
    lease: Lease,
    ttl: Duration,
    /// When the lease last began, by a clock read before the statement was sent.
    since: Instant,
    context: Context,
    /// Of a row that runs alone.
    solitude: Option<Arc<Solitude>>,
}

/// A lease to extend, and the token under which it goes on.
struct Due {
    key: usize,
    lease: Lease,
    token: Uuid,
}

impl Due {
    /// Where the token changes, a try without an answer may have landed.
    fn tries(&self) -> impl Iterator<Item = Extend> {
        let Self { lease, token, .. } = *self;
        let again = Extend { lease: Lease { token, ..lease }, token };
        let again = (token != lease.token).then_some(again);
        std::iter::once(Extend { lease, token }).chain(again)
    }

    /// Whether one of its tries did it: `done` tells of each.
    fn any(&self, done: &mut impl Iterator<Item = bool>) -> bool {
        done.take(self.tries().count()).fold(false, |any, done| any | done)
    }
}

/// Leases of about the same length: none is more than four times as long as another. Each
/// kind has a statement of its own, or the answer that a short lease cannot wait for any
/// more would be too late for a long one, too.
type Kind = u32;

fn kind(ttl: Duration) -> Kind {
    ttl.as_millis().max(1).ilog2() / 2
}

impl Held {
    /// A third of it is over, or the solitude.
    fn is_due(&self, now: Instant) -> bool {
        // A handler that blocks is still there after its lease is lost.
        (now.duration_since(self.since) >= self.ttl / 3 || self.ending().is_some()) && self.counts()
    }

    fn ending(&self) -> Option<&Arc<Solitude>> {
        self.solitude.as_ref().filter(|solitude| solitude.is_ending())
    }

    /// Whether it is to be extended, or given up when it runs out.
    fn counts(&self) -> bool {
        !self.context.delivery().watch.is_lost() && !self.context.delivery().is_sole_writer()
    }
}

/// Keeps a lease alive until dropped.
pub(crate) struct Holding<'a> {
    leases: &'a Leases,
    key: usize,
}

impl Leases {
    pub(super) fn telling(sinks: Sinks) -> Self {
        Self { sinks, ..Self::default() }
    }

    fn held(&self) -> MutexGuard<'_, Slab<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn hold(
        &self,
        lease: Lease,
        since: Instant,
        ttl: Duration,
        context: &Context,
    ) -> Holding<'_> {
        let held = Held { lease, ttl, since, context: context.clone(), solitude: None };
        Holding { leases: self, key: self.held().insert(held) }
    }

    /// Of a row that runs alone, for as long as that lasts.
    pub(super) fn hold_alone(
        &self,
        lease: Lease,
        since: Instant,
        ttl: Duration,
        context: &Context,
        solitude: &Arc<Solitude>,
    ) -> Holding<'_> {
        let solitude = Some(Arc::clone(solitude));
        let held = Held { lease, ttl, since, context: context.clone(), solitude };
        Holding { leases: self, key: self.held().insert(held) }
    }

    /// The lease task runs.
    fn is_looked_after(&self, now: Instant) {
        *self.looked_after.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    /// True when the lease task has not run for this long, though it has begun.
    pub(super) fn is_neglected(&self, now: Instant, limit: Duration) -> bool {
        let last = *self.looked_after.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|last| now.duration_since(last) >= limit)
    }

    fn kinds_due(&self, now: Instant) -> BTreeSet<Kind> {
        let held = self.held();
        let due = held.iter().filter(|(_, one)| one.is_due(now));
        due.map(|(_, one)| kind(one.ttl)).collect()
    }

    /// Leases of a kind that are due, and when the first of them runs out.
    fn to_extend(&self, of: Kind, now: Instant) -> (Vec<Due>, Instant) {
        let held = self.held();
        let mut first = now + LONGEST_WAIT;
        let mut due = Vec::new();
        for (key, one) in held.iter().filter(|(_, one)| kind(one.ttl) == of && one.is_due(now)) {
            let token = one.ending().map_or(one.lease.token, |solitude| solitude.token);
            due.push(Due { key, lease: one.lease, token });
            first = first.min(one.since + one.ttl);
        }
        due.sort_by_key(|one| one.lease.id);
        (due, first)
    }

    /// The key may be that of another lease by now.
    fn extended(&self, &Due { key, lease, token }: &Due, since: Instant) {
        if let Some(one) = self.held().get_mut(key).filter(|one| one.lease == lease) {
            // The answer may be late, and whoever looked after it meanwhile has extended it again.
            one.since = one.since.max(since);
            one.lease.token = token;
            if token != lease.token
                && let Some(solitude) = one.solitude.take()
            {
                solitude.has_ended();
            }
            one.context.delivery().watch.extend(one.since + one.ttl);
        }
    }

    fn lose(&self, key: usize, lease: Lease) {
        if let Some(one) = self.held().get(key).filter(|one| one.lease == lease) {
            one.context.delivery().watch.lose();
        }
    }

    /// When the first lease runs out that is not lost yet.
    fn first_deadline(&self) -> Option<Instant> {
        let held = self.held();
        let live = held.iter().filter(|(_, one)| one.counts());
        live.map(|(_, one)| one.since + one.ttl).min()
    }

    /// Gives up every lease at the moment at which it runs out: from then on another
    /// claim may own the row.
    async fn watch(&self, pace: Duration) {
        loop {
            // Leases that begin while it waits run out later: see `margin`.
            let again = Instant::now() + pace;
            sleep_until(self.first_deadline().map_or(again, |end| end.min(again))).await;
            self.lose_expired(Instant::now());
        }
    }

    /// Gives up leases that ran out while they could not be extended.
    fn lose_expired(&self, now: Instant) {
        for (_, one) in self.held().iter() {
            if now >= one.since + one.ttl && one.counts() {
                one.context.delivery().watch.lose();
            }
        }
    }
}

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        let held = self.leases.held().try_remove(self.key);
        // The user's code may run when the last context goes: not under the lock.
        drop(held);
    }
}

/// Extends until dropped. The shortest lease of the process sets the pace.
pub(super) async fn run<S: Store>(shared: Arc<Shared<S>>, shortest: Duration) {
    // Beside it: a database that is slow to answer does not keep the task from
    // running.
    let mut beats = interval(beat(shortest));
    let beating = async {
        loop {
            beats.tick().await;
            shared.leases.is_looked_after(Instant::now());
        }
    };
    tokio::select! {
        biased;
        () = beating => {}
        () = keep(&shared.leases, &shared.store, shortest) => {}
    }
}

/// Extends until dropped, and cancels what runs on a lease that is lost.
pub(crate) async fn keep<S: Store>(leases: &Leases, store: &S, shortest: Duration) {
    let mut ticks = interval(pace(shortest));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let extending = async {
        let (mut under_way, mut busy) = (FuturesUnordered::new(), BTreeSet::new());
        loop {
            tokio::select! {
                biased;
                _ = ticks.tick() => {}
                () = leases.hurry.notified() => {}
                Some(kind) = under_way.next() => {
                    busy.remove(&kind);
                    continue;
                }
            }
            for kind in leases.kinds_due(Instant::now()) {
                if busy.insert(kind) {
                    under_way.push(extend_kind(leases, store, kind));
                }
            }
        }
    };
    // Beside each other: while one lease waits for the database, another runs out.
    tokio::select! {
        biased;
        () = leases.watch(pace(shortest)) => {}
        () = extending => {}
    }
}

/// How often leases are looked at.
pub(super) fn pace(shortest: Duration) -> Duration {
    (shortest / 6).max(Duration::from_millis(1))
}

/// How often the lease task says that it runs. Invariant: the watchdog takes it for dead
/// after two beats and looks once a beat, so that it is there before a lease runs out whose
/// handler started with no more than a [`margin`] left, which is four.
pub(super) fn beat(shortest: Duration) -> Duration {
    pace(shortest) / 2
}

/// What has to be left of a lease for its handler to start: enough for the lease task
/// to see it before it runs out.
pub(super) fn margin(ttl: Duration) -> Duration {
    ttl / 3
}

/// Extends what is due, once.
pub(super) async fn extend<S: Store>(leases: &Leases, store: &S) {
    let kinds = leases.kinds_due(Instant::now());
    join_all(kinds.into_iter().map(|kind| extend_kind(leases, store, kind))).await;
}

async fn extend_kind<S: Store>(leases: &Leases, store: &S, kind: Kind) -> Kind {
    let now = Instant::now();
    let (due, first_deadline) = leases.to_extend(kind, now);
    if due.is_empty() {
        return kind;
    }
    let extends: Vec<Extend> = due.iter().flat_map(Due::tries).collect();
    // An answer may be long in coming: nobody waits for it longer than a lease.
    match timeout_at(first_deadline, store.extend(&extends)).await {
        Ok(Ok(landed)) => {
            let (mut landed, mut left) = (landed.into_iter(), Vec::new());
            for one in &due {
                if one.any(&mut landed) {
                    leases.extended(one, now);
                } else {
                    left.push(one);
                }
            }
            give_up(leases, store, &left, first_deadline).await;
        }
        Ok(Err(error)) => {
            warn!(target: TARGET, %error, leases = due.len(), "leases could not be extended");
            leases.sinks.lease_extension_failed(due.len());
        }
        Err(_) => {
            warn!(
                target: TARGET, leases = due.len(),
                "a lease ran out while the database did not answer"
            );
            leases.sinks.lease_extension_failed(due.len());
        }
    }
    leases.lose_expired(Instant::now());
    kind
}

/// Gives up leases that were not extended, but for those whose rows are locked: the next
/// tick tries again, until they run out.
async fn give_up<S: Store>(leases: &Leases, store: &S, left: &[&Due], deadline: Instant) {
    if left.is_empty() {
        return;
    }
    let of: Vec<Lease> = left.iter().flat_map(|one| one.tries()).map(|it| it.lease).collect();
    // Without an answer nothing is known of them, as where they could not be extended.
    let Ok(Ok(held)) = timeout_at(deadline, store.held(&of)).await else { return };
    let mut held = held.into_iter();
    for one in left {
        if !one.any(&mut held) {
            leases.lose(one.key, one.lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_not_extended_is_given_up_when_it_runs_out_and_not_at_a_later_tick() {
        let (leases, begun) = (Leases::default(), Instant::now());
        let lease = Lease { id: 1, token: Uuid::nil() };
        let ttl = Duration::from_secs(60);
        let context = Context::of_test("{}");
        let _holding = leases.hold(lease, begun, ttl, &context);
        tokio::select! {
            () = context.delivery().watch.lost() => {}
            () = leases.watch(Duration::from_secs(7)) => {}
        }
        assert_eq!(begun.elapsed(), ttl);
    }

    /// The lease task asked first, and could not look at the answer for as long as handlers
    /// blocked all threads; the watchdog went on.
    #[tokio::test(start_paused = true)]
    async fn a_late_answer_takes_nothing_from_a_lease() {
        let (leases, begun) = (Leases::default(), Instant::now());
        let lease = Lease { id: 1, token: Uuid::nil() };
        let (ttl, second) = (Duration::from_secs(6), Duration::from_secs(1));
        let context = Context::of_test("{}");
        let _holding = leases.hold(lease, begun, ttl, &context);
        let (due, _) = leases.to_extend(kind(ttl), begun + 3 * second);
        leases.extended(&due[0], begun + 7 * second);
        leases.extended(&due[0], begun + 3 * second);
        leases.lose_expired(begun + 10 * second);
        assert!(!context.delivery().watch.is_lost());
        leases.lose_expired(begun + 13 * second);
        assert!(context.delivery().watch.is_lost());
    }
}
