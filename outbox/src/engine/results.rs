//! Results that wait to be written. Batched by self-clocking: whatever arrived
//! while the last batch was written goes into the next one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::closing::Written;
use super::leave_to_others;
use super::settling::Settling;
use crate::store::CLAIM_BYTES;
use crate::unpoisoned::Locked as _;

/// Results of one batch at most.
const BATCH: usize = 1000;
/// Bytes of one batch at most, unless one result alone has more, and of all that wait: they
/// hold the messages that handlers return.
const BYTES: usize = CLAIM_BYTES;
/// So many are worth a second write beside the one under way.
const HALF: usize = BATCH / 2;
/// More than these slow the workers down.
const BACKLOG: usize = 4 * BATCH;
/// A write that takes longer does not keep others waiting: something is in its
/// way.
const STALLED: Duration = Duration::from_millis(100);

/// Between the workers and the settlers of a process.
#[derive(Default)]
pub(super) struct Results {
    /// A write that stalls keeps the others waiting, unless they fill half a batch: one
    /// connection that waits is enough.
    patient: bool,
    /// A std mutex, because it is never held over an await.
    state: Mutex<State>,
    /// Wakes one settler.
    filled: Notify,
    /// Wakes workers that wait for room.
    drained: Notify,
}

#[derive(Default)]
struct State {
    waiting: Vec<Settling>,
    /// Of all that wait.
    bytes: usize,
    /// Batches that are being written.
    writes: usize,
    /// Results that settlers have put off.
    later: usize,
    senders: usize,
}

impl State {
    /// Worth a write beside the one under way.
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

/// Hands results over. The settlers end when the last one is gone.
///
/// Dead letters have a way of their own: they lie in another table, and what keeps that from
/// being written, such as a lock or a want of room, is to keep no ack from it. Acks that set
/// timers have a third way: such a write waits for any open transaction that has written a timer
/// of the same name, and others are not to wait behind it. Acks of timers go that way too, in
/// front of those that set them again.
pub(crate) struct Sender {
    results: Arc<Results>,
    letters: Arc<Results>,
    timers: Arc<Results>,
}

impl Results {
    /// For dead letters. What holds one up, such as a lock of their table, holds up all.
    pub(super) fn of_letters() -> Self {
        let mut results = Self::default();
        results.patient = true;
        results
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// The next batch. A second one beside a write under way has to be worth it:
    /// otherwise two settlers would share what one statement can take. `None` when
    /// nothing can come any more.
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
                        // Nobody would look at it before the next result comes.
                        self.filled.notify_one();
                    }
                    return Some(batch);
                }
                (!state.waiting.is_empty(), state.waiting.is_empty() && state.senders == 0)
            };
            if over {
                // The other settlers end too.
                self.filled.notify_one();
                return None;
            }
            patience = STALLED;
            if !waiting || self.patient {
                filled.await;
            } else if timeout(STALLED, filled).await.is_err() {
                patience = Duration::ZERO;
            }
        }
    }

    /// A batch is written. Who says so asks for the next one, so nobody is woken; but that
    /// may take it a while, and one that is patient does not look by itself.
    pub(super) fn written(&self) {
        let mut state = self.state();
        state.writes -= 1;
        if self.patient && state.writes == 0 && !state.waiting.is_empty() {
            drop(state);
            self.filled.notify_one();
        }
    }

    /// A settler has put off so many, and had put off these before.
    pub(super) fn put_off(&self, before: &mut usize, now: usize) {
        if *before != now {
            let mut state = self.state();
            state.later = state.later + now - std::mem::replace(before, now);
        }
    }

    /// All that was handed over is written, or given up.
    pub(super) fn is_done(&self) -> bool {
        let state = self.state();
        state.waiting.is_empty() && state.writes + state.later == 0
    }

    fn is_sent_to(&self) {
        self.state().senders += 1;
    }

    fn is_left(&self) {
        let mut state = self.state();
        state.senders -= 1;
        if state.senders == 0 {
            drop(state);
            self.filled.notify_one();
        }
    }

    /// Gives it back if there is no room; says whether that woke a settler.
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
        // More in between wake nobody: the settlers are busy or awake.
        let wakes = first || now_half && !half;
        if wakes {
            self.filled.notify_one();
        }
        (None, wakes)
    }
}

/// A handler that blocked its thread may end when the settlers are gone.
impl Drop for Results {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.waiting.drain(..).for_each(|one| one.close(Written::Lost, false));
    }
}

impl Sender {
    pub(super) fn new(
        results: &Arc<Results>,
        letters: &Arc<Results>,
        timers: &Arc<Results>,
    ) -> Self {
        let [results, letters, timers] = [results, letters, timers].map(Arc::clone);
        let sender = Self { results, letters, timers };
        sender.ways().into_iter().for_each(Results::is_sent_to);
        sender
    }

    fn ways(&self) -> [&Results; 3] {
        [&self.results, &self.letters, &self.timers]
    }

    /// Hands one over; waits for room while the database is away.
    ///
    /// # Cancel safety
    /// A dropped call has handed over nothing.
    pub(super) async fn send(&self, settling: Box<Settling>) {
        self.send_while(settling, || ()).await;
    }

    /// As [`send`](Self::send), and holds what `waits` makes while it waits for room, if it
    /// has to.
    pub(super) async fn send_while<W>(&self, settling: Box<Settling>, waits: impl FnOnce() -> W) {
        let way = match &*settling {
            letter if letter.is_letter() => &self.letters,
            ack if ack.acks_timer() || ack.sets_timers() => &self.timers,
            _ => &self.results,
        };
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
}

impl Clone for Sender {
    fn clone(&self) -> Self {
        Self::new(&self.results, &self.letters, &self.timers)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.ways().into_iter().for_each(Results::is_left);
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests;
