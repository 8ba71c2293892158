//! The leases of running handlers. A lease is held from the admission of its row to the end of its
//! run. The lease task extends what is held (see `extend`), and the watchdog does so when that task
//! cannot run. A run whose lease is lost is cancelled.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use slab::Slab;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use super::solitude::Solitude;
use crate::extract::Context;
use crate::store::{Extend, Lease};
use crate::telemetry::Sinks;
use crate::unpoisoned::Locked as _;

/// Longer than the store itself waits for an answer.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A run that goes on for this long is logged once: without a timeout nothing else ends it.
pub(super) const LONG: Duration = Duration::from_secs(600);

/// The leases of running handlers.
#[derive(Default)]
pub(crate) struct Leases {
    held: Mutex<Slab<Held>>,
    /// Receives the events of leases that cannot be extended.
    pub(super) sinks: Sinks,
    /// When the lease task last ran; see `watchdog`.
    looked_after: Mutex<Option<Instant>>,
    /// Makes the lease task look before its time.
    pub(super) hurry: Arc<Notify>,
}

struct Held {
    lease: Lease,
    ttl: Duration,
    /// When the lease last began, by a clock that was read before the statement was sent: so it
    /// never seems to last longer than the database says.
    since: Instant,
    /// Until then it is not tried again: the database has answered that it cannot be extended.
    put_off: Option<Instant>,
    /// The log has said that its run is long.
    is_told: bool,
    context: Context,
    /// Set for a row that runs alone.
    solitude: Option<Arc<Solitude>>,
}

/// A lease to extend, and the token under which it continues.
pub(super) struct Due {
    pub(super) key: usize,
    pub(super) lease: Lease,
    token: Uuid,
    /// When it runs out, or a while from now.
    pub(super) until: Instant,
    /// Whose it is. Copied, because its run may be over before the answer comes.
    pub(super) subscriber: &'static str,
    pub(super) queue: String,
}

impl Due {
    /// What is asked of the database. Where the token changes, an earlier try without an answer may
    /// have landed, so the lease is looked for under both tokens.
    pub(super) fn tries(&self) -> impl Iterator<Item = Extend> {
        let Self { lease, token, .. } = *self;
        let again = Extend { lease: Lease { token, ..lease }, token };
        let again = self.is_renamed().then_some(again);
        std::iter::once(Extend { lease, token }).chain(again)
    }

    /// Whether the token changes.
    pub(super) fn is_renamed(&self) -> bool {
        self.token != self.lease.token
    }

    /// Whether one of its tries extended it. `done` has an answer for each.
    pub(super) fn any(&self, done: &mut impl Iterator<Item = bool>) -> bool {
        done.take(self.tries().count()).fold(false, |any, done| any | done)
    }
}

/// Leases of about the same length: none is four times as long as another. Each kind has a
/// statement of its own. In a common statement, an answer that a short lease could not wait for
/// would come too late for a long one, too.
pub(super) type Kind = u32;

pub(super) fn kind(ttl: Duration) -> Kind {
    ttl.as_millis().max(1).ilog2() / 2
}

impl Held {
    /// Whether a third of the lease is over, or its solitude is to end.
    fn is_due(&self, now: Instant) -> bool {
        let is_old = now.duration_since(self.since) >= self.ttl / 3;
        let is_put_off = self.put_off.is_some_and(|until| now < until);
        // A handler that blocks is still here after its lease is lost.
        (is_old && !is_put_off || self.ending().is_some()) && self.counts()
    }

    fn ending(&self) -> Option<&Arc<Solitude>> {
        self.solitude.as_ref().filter(|solitude| solitude.is_ending())
    }

    /// Whether it is to be extended, and given up when it runs out.
    fn counts(&self) -> bool {
        !self.context.delivery().watch.is_lost() && !self.context.delivery().is_sole_writer()
    }
}

/// Keeps a lease held until dropped.
pub(crate) struct Holding<'a> {
    leases: &'a Leases,
    key: usize,
}

impl Leases {
    pub(super) fn telling(sinks: Sinks) -> Self {
        Self { sinks, ..Self::default() }
    }

    fn held(&self) -> MutexGuard<'_, Slab<Held>> {
        self.held.locked()
    }

    pub(crate) fn hold(
        &self,
        lease: Lease,
        since: Instant,
        ttl: Duration,
        context: &Context,
    ) -> Holding<'_> {
        self.hold_in(lease, since, ttl, context, None)
    }

    /// As [`hold`](Self::hold), for a row that may run alone.
    pub(super) fn hold_in(
        &self,
        lease: Lease,
        since: Instant,
        ttl: Duration,
        context: &Context,
        solitude: Option<Arc<Solitude>>,
    ) -> Holding<'_> {
        let (context, put_off, is_told) = (context.clone(), None, false);
        let held = Held { lease, ttl, since, put_off, is_told, context, solitude };
        Holding { leases: self, key: self.held().insert(held) }
    }

    /// Notes that the lease task runs.
    pub(super) fn look_after(&self, now: Instant) {
        *self.looked_after.locked() = Some(now);
    }

    /// True when the lease task has begun but has not run for this long.
    pub(super) fn is_neglected(&self, now: Instant, limit: Duration) -> bool {
        let last = *self.looked_after.locked();
        last.is_some_and(|last| now.duration_since(last) >= limit)
    }

    pub(super) fn kinds_due(&self, now: Instant) -> BTreeSet<Kind> {
        let held = self.held();
        let due = held.iter().filter(|(_, one)| one.is_due(now));
        due.map(|(_, one)| kind(one.ttl)).collect()
    }

    /// The leases of a kind that are due.
    pub(super) fn to_extend(&self, of: Kind, now: Instant) -> Vec<Due> {
        let held = self.held();
        let mut due = Vec::new();
        for (key, one) in held.iter().filter(|(_, one)| kind(one.ttl) == of && one.is_due(now)) {
            let token = one.ending().map_or(one.lease.token, |solitude| solitude.token);
            let (subscriber, queue) = (one.context.subscriber(), one.context.queue().to_owned());
            let until = (one.since + one.ttl).min(now + LONGEST_WAIT);
            due.push(Due { key, lease: one.lease, token, until, subscriber, queue });
        }
        due.sort_by_key(|one| one.lease.id);
        due
    }

    /// The subscribers whose handlers run.
    pub(super) fn running(&self) -> BTreeSet<&'static str> {
        let held = self.held();
        let deliveries = held.iter().map(|(_, one)| one.context.delivery());
        let begun = deliveries.filter(|delivery| delivery.began.get().is_some());
        begun.map(|delivery| delivery.common.subscriber).collect()
    }

    /// The runs that have become long since this was last asked.
    pub(super) fn long(&self, now: Instant) -> Vec<Context> {
        let mut held = self.held();
        let is_long = |one: &Held| {
            let began = one.context.delivery().began.get();
            !one.is_told && began.is_some_and(|began| now.duration_since(*began) >= LONG)
        };
        let long = held.iter_mut().filter(|(_, one)| is_long(one));
        let told = long.map(|(_, one)| {
            one.is_told = true;
            one.context.clone()
        });
        told.collect()
    }

    /// Notes that a lease was extended. Its key may be that of another lease by now.
    pub(super) fn extended(&self, &Due { key, lease, token, .. }: &Due, since: Instant) {
        if let Some(one) = self.held().get_mut(key).filter(|one| one.lease == lease) {
            // The answer may be late, and the lease may have been extended again meanwhile.
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

    /// Notes that these could not be extended. The pace of the process is that of its shortest
    /// lease; these are tried again at their own. A bit less, because the answer to one look may
    /// come later behind it than that to the next.
    pub(super) fn put_off<'a>(&self, these: impl IntoIterator<Item = &'a Due>, now: Instant) {
        let mut held = self.held();
        for &Due { key, lease, .. } in these {
            if let Some(one) = held.get_mut(key).filter(|one| one.lease == lease) {
                one.put_off = Some(now + pace(one.ttl) * 3 / 4);
            }
        }
    }

    pub(super) fn lose(&self, key: usize, lease: Lease) {
        if let Some(one) = self.held().get(key).filter(|one| one.lease == lease) {
            one.context.delivery().watch.lose();
        }
    }

    /// When the first lease that is not lost yet runs out.
    fn first_deadline(&self) -> Option<Instant> {
        let held = self.held();
        let live = held.iter().filter(|(_, one)| one.counts());
        live.map(|(_, one)| one.since + one.ttl).min()
    }

    /// Gives up every lease at the moment when it runs out: from then on another claim may own the
    /// row.
    pub(super) async fn watch(&self, pace: Duration) {
        loop {
            // Leases that begin while it waits run out later: see `margin`.
            let again = Instant::now() + pace;
            sleep_until(self.first_deadline().map_or(again, |end| end.min(again))).await;
            self.lose_expired(Instant::now());
        }
    }

    /// Gives up leases that ran out while they could not be extended.
    pub(super) fn lose_expired(&self, now: Instant) {
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
        // The user's code may run when the last context is dropped: not under the lock.
        drop(held);
    }
}

/// How often leases are looked at.
pub(super) fn pace(shortest: Duration) -> Duration {
    (shortest / 6).max(Duration::from_millis(1))
}

/// How often the lease task says that it runs.
///
/// Invariant: a handler starts only with a [`margin`] of its lease left, which is four beats. The
/// watchdog takes the task for dead after two beats without a sign, and looks once a beat. So it
/// steps in after three beats, or half a beat later: in time.
pub(super) fn beat(shortest: Duration) -> Duration {
    pace(shortest) / 2
}

/// What has to be left of a lease for its handler to start: enough for the lease task to see the
/// lease before it runs out.
pub(super) fn margin(ttl: Duration) -> Duration {
    ttl / 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_leases_of_a_kind_none_is_four_times_as_long_as_the_other() {
        let all = (0..40).map(|n| Duration::from_millis(100).mul_f64(1.3_f64.powi(n)));
        for ttl in all {
            assert_ne!(kind(ttl), kind(4 * ttl), "{ttl:?}");
        }
    }

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

    #[tokio::test(start_paused = true)]
    async fn a_run_that_goes_on_is_told_of_once() {
        let (leases, begun) = (Leases::default(), Instant::now());
        let lease = Lease { id: 1, token: Uuid::nil() };
        let context = Context::of_test("{}");
        let _holding = leases.hold(lease, begun, LONG / 10, &context);
        let told = |after| leases.long(begun + after).len();
        assert_eq!(told(2 * LONG), 0, "it waits to begin");
        context.delivery().began.set(begun + LONG).unwrap();
        assert_eq!([told(LONG * 3 / 2), told(2 * LONG), told(3 * LONG)], [0, 1, 0]);
    }

    /// Its run has ended, and another run has its place.
    #[tokio::test(start_paused = true)]
    async fn an_answer_for_a_lease_that_has_ended_is_not_its_neighbour_s() {
        let (leases, begun) = (Leases::default(), Instant::now());
        let (ttl, second) = (Duration::from_secs(6), Duration::from_secs(1));
        let lease =
            |id: i32| Lease { id: id.into(), token: Uuid::from_u128(id.unsigned_abs().into()) };
        let [one, other] = [1, 2].map(lease);
        let contexts = [(); 2].map(|()| Context::of_test("{}"));
        let holding = leases.hold(one, begun, ttl, &contexts[0]);
        let due = leases.to_extend(kind(ttl), begun + 3 * second);
        drop(holding);
        let _holding = leases.hold(other, begun + 3 * second, ttl, &contexts[1]);
        assert!(leases.held().contains(due[0].key), "it has the same place");
        leases.extended(&due[0], begun + 5 * second);
        leases.lose(due[0].key, one);
        let watch = &contexts[1].delivery().watch;
        assert!(!watch.is_lost() && watch.deadline() < begun + 10 * second);
        let due = leases.to_extend(kind(ttl), begun + 7 * second);
        assert_eq!((due[0].lease, due[0].token), (other, other.token));
    }

    /// The lease task asked first, and could not look at the answer while handlers blocked all
    /// threads; the watchdog went on.
    #[tokio::test(start_paused = true)]
    async fn a_late_answer_takes_nothing_from_a_lease() {
        let (leases, begun) = (Leases::default(), Instant::now());
        let lease = Lease { id: 1, token: Uuid::nil() };
        let (ttl, second) = (Duration::from_secs(6), Duration::from_secs(1));
        let context = Context::of_test("{}");
        let _holding = leases.hold(lease, begun, ttl, &context);
        let due = leases.to_extend(kind(ttl), begun + 3 * second);
        leases.extended(&due[0], begun + 7 * second);
        leases.extended(&due[0], begun + 3 * second);
        leases.lose_expired(begun + 10 * second);
        assert!(!context.delivery().watch.is_lost());
        leases.lose_expired(begun + 13 * second);
        assert!(context.delivery().watch.is_lost());
    }
}
