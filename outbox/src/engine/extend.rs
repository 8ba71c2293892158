//! Extends the leases of running handlers, and gives up those that cannot be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use tracing::warn;

use super::Shared;
use super::lease::{Due, Kind, LONG, Leases, beat, pace};
use crate::store::{Extend, Lease, Store};
use crate::telemetry::TARGET;

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
            tell_of_long(leases);
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

/// Of several messages of one subscriber, such as a batch, once.
fn tell_of_long(leases: &Leases) {
    let mut long = BTreeMap::<_, Vec<_>>::new();
    for context in leases.long(Instant::now()) {
        long.entry(context.subscriber()).or_default().push(context);
    }
    for (subscriber, contexts) in long {
        warn!(
            target: TARGET, subscriber, row_id = contexts[0].id(), rows = contexts.len(),
            "a handler has been running for {}; without a `timeout` nothing ends it",
            humantime::format_duration(LONG)
        );
    }
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
