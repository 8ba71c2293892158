//! Running alone.
//!
//! When a process dies, every row that it had in hand comes back with an expired lease, the
//! innocent with the guilty. A row that has used up its `max_deliveries` that way is not judged
//! yet. It runs once more with no other handler beside it, under a token that says so. If that
//! lease expires too, either the row itself kills processes, or the database was away for as long
//! as a lease: nobody can tell which. A row that takes long is not alone for ever: see `solitude`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{Mutex, Notify, OwnedMutexGuard};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use crate::error::StoreError;
use crate::store::{Extend, Lease, Store};
use crate::unpoisoned::Locked as _;

/// How long others are kept from starting while a row waits to be alone. If some handler runs on
/// for longer, the row runs beside it, and nothing is concluded.
const PATIENCE: Duration = Duration::from_secs(5);
/// After somebody waited in vain, nobody else waits for this long, unless all handlers have ended
/// meanwhile. A thousand such rows would otherwise keep all others from starting for an hour.
const LOUD: Duration = Duration::from_secs(50);
/// How long a row keeps others waiting when somebody has locked it, or the database says nothing
/// about it.
const LOCKED: Duration = Duration::from_secs(2);
/// How many tries to mark a row are under way at a time, at most.
const TRIES: usize = 3;
/// With less than this left of its lease there is no time for another try.
const SHORTEST: Duration = Duration::from_millis(10);

/// Counts the handlers that run, and lets one run alone.
#[derive(Default)]
pub(crate) struct Quiet {
    running: AtomicUsize,
    /// How many rows wait to be alone, or are alone. Nobody else starts meanwhile.
    wanted: AtomicUsize,
    /// Only one row is alone at a time.
    turn: Arc<Mutex<()>>,
    /// Wakes those who wait for handlers to end.
    ended: Notify,
    /// Wakes those who wait to start.
    free: Notify,
    /// How many wait to start.
    waiting: AtomicUsize,
    /// Wakes who waits for these.
    none_waits: Notify,
    /// How often the last of the running handlers has ended.
    silences: AtomicUsize,
    /// That number when somebody last waited in vain, and until when nobody else waits.
    loud: std::sync::Mutex<Option<(usize, Instant)>>,
}

/// Counts handlers as running, however they end.
pub(super) struct Running<'a> {
    quiet: &'a Quiet,
    these: usize,
}

/// Waits to start.
struct Waiting<'a>(&'a Quiet);

/// No other handler starts as long as this exists.
pub(super) struct Alone {
    quiet: Arc<Quiet>,
    _turn: OwnedMutexGuard<()>,
}

impl Quiet {
    /// Counts them, even if somebody wants to be alone.
    pub(super) fn count(&self, these: usize) -> Running<'_> {
        self.running.fetch_add(these, Ordering::SeqCst);
        Running { quiet: self, these }
    }

    /// Counts them if nobody wants to be alone.
    pub(super) fn count_beside(&self, these: usize) -> Option<Running<'_>> {
        let running = self.count(these);
        (self.wanted.load(Ordering::SeqCst) == 0).then_some(running)
    }

    /// Counts them once nobody wants to be alone.
    pub(super) async fn beside_others(&self, these: usize) -> Running<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let _waiting = Waiting(self);
        loop {
            let free = self.free.notified();
            if let Some(running) = self.count_beside(these) {
                return running;
            }
            free.await;
        }
    }

    /// Lets those start who waited for somebody that was alone: many rows that are alone one after
    /// the other would keep them waiting for all. Whoever comes now need not wait.
    async fn let_others_start(&self) {
        loop {
            let none_waits = self.none_waits.notified();
            if self.waiting.load(Ordering::SeqCst) == 0 {
                return;
            }
            none_waits.await;
        }
    }

    fn is_loud(&self) -> bool {
        let loud = *self.loud.locked();
        let silences = self.silences.load(Ordering::SeqCst);
        loud.is_some_and(|(then, until)| then == silences && Instant::now() < until)
    }

    /// Waits for its turn, and then until no other handler runs, and keeps others from starting.
    /// `None` if handlers run on for too long, and at once for a while after somebody has waited
    /// for them in vain.
    pub(super) async fn alone(self: &Arc<Self>) -> Option<Alone> {
        if self.is_loud() {
            return None;
        }
        // Whoever has the turn gives it up in time. Nobody is kept from starting for this.
        let turn = Arc::clone(&self.turn).lock_owned().await;
        // A task that is not polled is not waited for.
        let _ = timeout(PATIENCE, self.let_others_start()).await;
        // Whoever had the turn before may have waited in vain.
        if self.is_loud() {
            return None;
        }
        let until = Instant::now() + PATIENCE;
        self.wanted.fetch_add(1, Ordering::SeqCst);
        let alone = Alone { quiet: Arc::clone(self), _turn: turn };
        let quiet = async {
            loop {
                let ended = self.ended.notified();
                if self.running.load(Ordering::SeqCst) == 0 {
                    return;
                }
                ended.await;
            }
        };
        if timeout_at(until, quiet).await.is_err() {
            let loud = (self.silences.load(Ordering::SeqCst), until + LOUD);
            *self.loud.locked() = Some(loud);
            return None;
        }
        Some(alone)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.quiet.running.fetch_sub(self.these, Ordering::SeqCst) == self.these {
            self.quiet.silences.fetch_add(1, Ordering::SeqCst);
        }
        if self.quiet.wanted.load(Ordering::SeqCst) > 0 {
            self.quiet.ended.notify_waiters();
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.0.waiting.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.none_waits.notify_waiters();
        }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.quiet.wanted.fetch_sub(1, Ordering::SeqCst);
        self.quiet.free.notify_waiters();
    }
}

/// Under which token a lease continues.
pub(super) enum Marked {
    /// Under the one that says "alone", and no other handler has started.
    Alone(Alone),
    /// Under its old one: somebody else has the row locked, or the drain has begun.
    Not,
    /// Under none: it is lost.
    Lost,
    /// Nobody knows: the database has not answered, and may have set the mark or may still set it.
    /// Or its answer took so long that others have started.
    Unknown,
}

/// Continues a lease under a token that says "alone".
///
/// A try without an answer is repeated beside it, on another connection: the first connection may
/// be dead, or all of them slow. If a try had landed unnoticed, the row would be found guilty later
/// without having been started. Nobody else waits for these tries: where every statement takes
/// seconds, nothing runs alone.
pub(super) async fn mark<S: Store>(
    store: &S,
    lease: Lease,
    marked: Lease,
    deadline: Instant,
    stop: &CancellationToken,
    alone: Alone,
) -> Marked {
    let (begun, mut backoff) = (Instant::now(), Backoff::of_errors());
    let (mut unanswered, mut alone) = (false, Some(alone));
    // When another try is sent beside those under way.
    let (mut tries, mut next) = (FuturesUnordered::new(), begun);
    loop {
        let now = Instant::now();
        if tries.is_empty() || now >= next {
            if tries.len() < TRIES {
                tries.push(try_to_mark(store, lease, marked));
            }
            next = now + deadline.saturating_duration_since(now) / 4;
        }
        let mut until = next;
        if alone.is_some() {
            // Early enough for the next try to have an answer.
            let halfway = begun + LOCKED / 2;
            until = until.min(if now < halfway { halfway } else { begun + LOCKED });
        }
        let answer = timeout_at(until, tries.next()).await.ok().flatten();
        let silent = answer.is_none();
        match answer {
            Some(Tried::Landed) => return alone.map_or(Marked::Unknown, Marked::Alone),
            Some(Tried::Lost) => return Marked::Lost,
            Some(Tried::Failed(failed)) => {
                unanswered |= failed.perhaps_done;
                if !failed.transient {
                    return Marked::Unknown;
                }
            }
            Some(Tried::Locked) => {}
            None => next = until,
        }
        // The tries under way may still land.
        let unknown = unanswered || !tries.is_empty();
        let ends = stop.is_cancelled() || Instant::now() >= begun + LOCKED;
        if ends && !unknown {
            return Marked::Not;
        }
        alone = alone.filter(|_| !ends);
        if Instant::now() + SHORTEST >= deadline {
            return Marked::Unknown;
        }
        // At the end, the answers of tries under way are waited for.
        if silent || ends && !tries.is_empty() {
            continue;
        }
        next = Instant::now() + backoff.after(true);
        if !tries.is_empty() {
            continue;
        }
        if unanswered {
            sleep_until(next).await;
        } else {
            stop.run_until_cancelled(sleep_until(next)).await;
        }
    }
}

enum Tried {
    Landed,
    /// Somebody else has the row locked.
    Locked,
    Lost,
    Failed(StoreError),
}

async fn try_to_mark<S: Store>(store: &S, lease: Lease, marked: Lease) -> Tried {
    let token = marked.token;
    match store.extend(&[Extend { lease, token }, Extend { lease: marked, token }]).await {
        Ok(landed) if landed.contains(&true) => Tried::Landed,
        Ok(_) => match store.held(&[lease, marked]).await {
            Ok(held) if held.contains(&true) => Tried::Locked,
            Ok(_) => Tried::Lost,
            // That statement writes nothing, so nothing was done.
            Err(failed) => Tried::Failed(StoreError { perhaps_done: false, ..failed }),
        },
        Err(failed) => Tried::Failed(failed),
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_handler_that_runs_on_keeps_others_from_starting_once_and_not_for_each_that_waits() {
        let (quiet, begun) = (Arc::<Quiet>::default(), Instant::now());
        let long = quiet.count(1);
        for _ in 0..10 {
            assert!(quiet.alone().await.is_none());
        }
        assert_eq!(begun.elapsed(), PATIENCE);
        sleep(LOUD).await;
        assert!(quiet.alone().await.is_none());
        assert_eq!(begun.elapsed(), PATIENCE + LOUD + PATIENCE);
        drop(long);
        assert!(quiet.alone().await.is_some(), "it has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn nor_for_one_that_waits_for_the_turn_of_another() {
        let (quiet, begun) = (Arc::<Quiet>::default(), Instant::now());
        let _long = quiet.count(1);
        let second = async {
            sleep(PATIENCE * 9 / 10).await;
            quiet.alone().await.is_none()
        };
        let (first, second) = tokio::join!(quiet.alone(), second);
        assert!(first.is_none() && second);
        assert_eq!(begun.elapsed(), PATIENCE);
    }

    /// However long those before it take together; and whoever is not one of them runs between.
    #[tokio::test(start_paused = true)]
    async fn each_of_many_is_alone_in_its_turn_and_others_start_between_them() {
        const LONG: Duration = Duration::from_secs(2);
        let quiet = Arc::<Quiet>::default();
        let suspects = (0..8).map(|_| async {
            let alone = quiet.alone().await.expect("no handler runs on");
            assert_eq!(quiet.running.load(Ordering::SeqCst), 0);
            sleep(LONG).await;
            drop(alone);
        });
        let mut runs = 0;
        let others = async {
            loop {
                let running = quiet.beside_others(1).await;
                runs += 1;
                sleep(LONG).await;
                drop(running);
            }
        };
        tokio::select! {
            _ = futures_util::future::join_all(suspects) => {}
            () = others => {}
        }
        assert!(runs >= 7, "{runs}");
    }
}
