//! Results that wait to be written: the queue between workers and settlers. Its batches clock
//! themselves: whatever arrives while the last batch is written goes into the next one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use super::extend::REST;
use super::leave_to_others;
use super::settling::Settling;
use crate::store::{CLAIM_BYTES, Store};
use crate::unpoisoned::Locked as _;

/// The most results of one batch.
const BATCH: usize = 1000;
/// The most bytes of one batch, unless a single result has more; and of all results that wait. They
/// hold the messages that handlers return.
const BYTES: usize = CLAIM_BYTES;
/// With this many results waiting, a second write beside the one under way is worth it.
const HALF: usize = BATCH / 2;
/// More waiting results than these slow the workers down.
const BACKLOG: usize = 4 * BATCH;
/// A write that takes longer than this no longer keeps others waiting: something is in its way.
const STALLED: Duration = Duration::from_millis(100);

/// Between the workers and the settlers of a process.
#[derive(Default)]
pub(super) struct Results {
    /// A write that stalls keeps the others waiting, unless they fill half a batch: one connection
    /// that waits is enough.
    patient: bool,
    /// A std mutex, because it is never held over an await.
    state: Mutex<State>,
    /// Wakes one settler.
    filled: Notify,
    /// Wakes workers that wait for room.
    drained: Notify,
    /// Closed when nobody can send any more: whoever can holds a receiver of it.
    senders: watch::Sender<()>,
}

#[derive(Default)]
struct State {
    waiting: Vec<Settling>,
    /// The bytes of all that wait.
    bytes: usize,
    /// Batches that are being written.
    writes: usize,
    /// Results that settlers have put off.
    later: usize,
}

impl State {
    /// Whether the waiting results are worth a write beside the one under way.
    fn is_half_full(&self) -> bool {
        self.waiting.len() >= HALF || self.bytes >= BYTES / 2
    }

    fn take(&mut self) -> Vec<Settling> {
        let mut bytes = 0;
        let fits = |one: &&Settling| {
            let sum = bytes + one.bytes();
            let fits = bytes == 0 || sum <= BYTES;
            bytes = if fits { sum } else { bytes };
            fits
        };
        let count = self.waiting.iter().take(BATCH).take_while(fits).count();
        self.bytes -= bytes;
        let rest = if self.waiting.len() > count {
            self.waiting.split_off(count)
        } else {
            Vec::with_capacity(count)
        };
        std::mem::replace(&mut self.waiting, rest)
    }
}

/// Hands results over to the settlers. They end when the last sender is gone.
///
/// There are three ways, so that what delays one kind does not delay the others:
/// - Dead letters go into another table. What keeps that table from being written, such as a lock
///   or a full disk, must not keep an ack from being written.
/// - An ack that sets a timer waits for any open transaction that has written a timer of the same
///   name, and other acks must not wait behind it. Acks of timers go this way too, in front of
///   those that set the timers again.
/// - All other results.
#[derive(Clone)]
pub(crate) struct Sender {
    ways: Ways,
    _open: [watch::Receiver<()>; 3],
}

/// Results, dead letters, and acks that have to do with timers.
pub(super) type Ways = [Arc<Results>; 3];

/// Whether all that was handed over is written, or given up.
pub(super) fn are_done(ways: &Ways) -> bool {
    let [results, letters, timers] = ways;
    // Letters last: the settlers of the others may hand some over until they are done.
    [results, timers, letters].iter().all(|way| way.is_done())
}

/// The way of the dead letters, for a settler of other results: an ack that the database refuses
/// may become a letter. The letters' settlers do not end before this is dropped.
pub(super) struct Letters {
    way: Arc<Results>,
    _open: watch::Receiver<()>,
}

impl Letters {
    pub(super) fn of(ways: &Ways) -> Self {
        Self { way: Arc::clone(&ways[1]), _open: ways[1].senders.subscribe() }
    }

    /// Hands a letter over, or returns it if there is no room.
    pub(super) fn take(&self, letter: Settling) -> Option<Settling> {
        self.way.take_over(Box::new(letter)).0.map(|letter| *letter)
    }
}

impl Results {
    /// For dead letters. What delays one of them, such as a lock of their table, delays all of
    /// them.
    pub(super) fn of_letters() -> Self {
        let mut results = Self::default();
        results.patient = true;
        results
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// The next batch. A second batch beside a write under way has to be worth it: otherwise two
    /// settlers would share what one statement can take. `None` when nothing can come any more.
    pub(super) async fn next(&self) -> Option<Vec<Settling>> {
        let mut patience = STALLED;
        loop {
            let filled = self.filled.notified();
            let (waiting, over) = {
                let mut state = self.state();
                let any = state.writes == 0 || patience.is_zero();
                if state.is_half_full() || any && !state.waiting.is_empty() {
                    state.writes += 1;
                    let batch = state.take();
                    let more = !state.waiting.is_empty();
                    drop(state);
                    self.drained.notify_waiters();
                    if more {
                        // Nobody would look at the rest before the next result comes.
                        self.filled.notify_one();
                    }
                    return Some(batch);
                }
                // Asked under the lock: whoever has dropped a sender has sent all before.
                (!state.waiting.is_empty(), state.waiting.is_empty() && self.senders.is_closed())
            };
            if over {
                // So that the other settlers end too.
                self.filled.notify_one();
                return None;
            }
            patience = STALLED;
            tokio::select! {
                () = filled => {}
                // Once it is closed it is ready for ever. Who still has results to take waits for
                // the write before them.
                () = self.senders.closed(), if !waiting => {}
                () = sleep(STALLED), if waiting && !self.patient => patience = Duration::ZERO,
            }
        }
    }

    /// Extends the leases of acks that have to do with timers and wait until their settler takes more
    /// of them: somebody may hold a timer for longer than a lease.
    pub(super) async fn extend<S: Store>(&self, store: &S) {
        let now = Instant::now();
        let waits = |one: &&Settling| one.is_due(now) && (one.sets_timers() || one.acks_timer());
        let due: Vec<_> =
            self.state().waiting.iter().filter(waits).map(Settling::as_extend).collect();
        let mut parts: Vec<_> = due.chunks(BATCH).rev().collect();
        while let Some(part) = parts.pop() {
            let sent = Instant::now();
            let extended = match store.extend(part).await {
                Ok(extended) => extended,
                Err(failed) if failed.took_too_long && part.len() > 1 => {
                    sleep(REST).await;
                    let (one, other) = part.split_at(part.len() / 2);
                    parts.extend([other, one]);
                    continue;
                }
                Err(_) => return,
            };
            let mut part = part.iter().zip(extended).filter(|(_, extended)| *extended).peekable();
            // Others may have come behind them.
            for one in &mut self.state().waiting {
                if part.next_if(|(extend, _)| extend.lease == one.lease).is_some() {
                    one.goes_on(sent);
                }
            }
        }
    }

    /// A batch is written. The settler that says so asks for the next one, so nobody is woken. But
    /// that may take it a while; a patient queue then wakes the other settler, which does not look
    /// by itself.
    pub(super) fn written(&self) {
        let mut state = self.state();
        state.writes -= 1;
        if self.patient && state.writes == 0 && !state.waiting.is_empty() {
            drop(state);
            self.filled.notify_one();
        }
    }

    /// A settler has put off `now` results, and had put off `before`.
    pub(super) fn put_off(&self, before: &mut usize, now: usize) {
        if *before != now {
            let mut state = self.state();
            state.later = state.later + now - std::mem::replace(before, now);
        }
    }

    fn is_done(&self) -> bool {
        let state = self.state();
        state.waiting.is_empty() && state.writes + state.later == 0
    }

    /// Takes a result, or returns it if there is no room. Also says whether that woke a settler.
    fn take_over(&self, settling: Box<Settling>) -> (Option<Box<Settling>>, bool) {
        let mut state = self.state();
        if state.waiting.len() >= BACKLOG || state.bytes >= BYTES {
            return (Some(settling), false);
        }
        let (first, half) = (state.waiting.is_empty(), state.is_half_full());
        state.bytes += settling.bytes();
        state.waiting.push(*settling);
        let now_half = state.is_half_full();
        drop(state);
        // The results in between wake nobody: the settlers are busy or awake.
        let wakes = first || now_half && !half;
        if wakes {
            self.filled.notify_one();
        }
        (None, wakes)
    }
}

/// A handler that blocked its thread may end when the settlers are gone. Its result is reported as
/// lost.
impl Drop for Results {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.waiting.drain(..).for_each(|one| one.close(false, false));
    }
}

impl Sender {
    pub(super) fn new(ways: &Ways) -> Self {
        let open = ways.each_ref().map(|way| way.senders.subscribe());
        Self { ways: ways.clone(), _open: open }
    }

    /// Hands a result over, and waits for room while the database is away.
    ///
    /// # Cancel safety
    /// A dropped call has handed over nothing.
    pub(super) async fn send(&self, settling: Box<Settling>) {
        self.send_while(settling, || ()).await;
    }

    /// As [`send`](Self::send). While it has to wait for room, it holds what `waits` makes.
    pub(super) async fn send_while<W>(&self, settling: Box<Settling>, waits: impl FnOnce() -> W) {
        let way = self.way(&settling);
        let (mut late, mut wakes) = way.take_over(settling);
        let _waits = late.is_some().then(waits);
        while let Some(settling) = late {
            let drained = way.drained.notified();
            (late, wakes) = way.take_over(settling);
            if late.is_some() {
                drained.await;
            }
        }
        if wakes {
            leave_to_others();
        }
    }

    /// Hands a result over, or returns it if there is no room now.
    pub(super) fn offer(&self, settling: Box<Settling>) -> Option<Box<Settling>> {
        let (left, wakes) = self.way(&settling).take_over(settling);
        if wakes {
            leave_to_others();
        }
        left
    }

    fn way(&self, settling: &Settling) -> &Results {
        let [results, letters, timers] = &self.ways;
        if settling.is_letter() {
            letters
        } else if settling.acks_timer() || settling.sets_timers() {
            timers
        } else {
            results
        }
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests;
