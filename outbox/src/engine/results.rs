//! Results that wait to be written. Batched by self-clocking: whatever arrived
//! while the last batch was written goes into the next one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::settle::Settling;

/// Results of one batch at most.
const BATCH: usize = 1000;
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
    /// Batches that are being written.
    writes: usize,
    senders: usize,
}

/// Hands results over. The settlers end when the last one is gone.
///
/// Dead letters have a way of their own: they lie in another table, and what keeps that from
/// being written, such as a lock or a want of room, is to keep no ack from it.
pub(crate) struct Sender {
    results: Arc<Results>,
    letters: Arc<Results>,
}

impl Results {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
                let worth = if state.writes == 0 || patience.is_zero() { 1 } else { HALF };
                if state.waiting.len() >= worth {
                    state.writes += 1;
                    let rest = if state.waiting.len() > BATCH {
                        state.waiting.split_off(BATCH)
                    } else {
                        Vec::with_capacity(state.waiting.len())
                    };
                    let batch = std::mem::replace(&mut state.waiting, rest);
                    drop(state);
                    self.drained.notify_waiters();
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
            if !waiting {
                filled.await;
            } else if timeout(STALLED, filled).await.is_err() {
                patience = Duration::ZERO;
            }
        }
    }

    /// A batch is written. Who says so asks for the next one, so nobody is woken.
    pub(super) fn written(&self) {
        self.state().writes -= 1;
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

    /// Gives it back if there is no room.
    fn take_over(&self, settling: Settling) -> Option<Settling> {
        let mut state = self.state();
        let length = state.waiting.len();
        if length >= BACKLOG {
            return Some(settling);
        }
        state.waiting.push(settling);
        drop(state);
        // More in between wake nobody: the settlers are busy or awake.
        if length == 0 || length + 1 == HALF {
            self.filled.notify_one();
        }
        None
    }
}

impl Sender {
    pub(super) fn new(results: &Arc<Results>, letters: &Arc<Results>) -> Self {
        let (results, letters) = (Arc::clone(results), Arc::clone(letters));
        let sender = Self { results, letters };
        sender.ways().into_iter().for_each(Results::is_sent_to);
        sender
    }

    fn ways(&self) -> [&Results; 2] {
        [&self.results, &self.letters]
    }

    /// Hands one over; waits for room while the database is away.
    ///
    /// # Cancel safety
    /// A dropped call has handed over nothing.
    pub(super) async fn send(&self, settling: Settling) {
        let way = if settling.is_letter() { &self.letters } else { &self.results };
        let mut late = way.take_over(settling);
        while let Some(settling) = late {
            let drained = way.drained.notified();
            late = way.take_over(settling);
            if late.is_some() {
                drained.await;
            }
        }
    }
}

impl Clone for Sender {
    fn clone(&self) -> Self {
        Self::new(&self.results, &self.letters)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.ways().into_iter().for_each(Results::is_left);
    }
}
