//! Results that wait to be written. Batched by self-clocking: whatever arrived
//! while the last batch was written goes into the next one.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

use super::leave_to_others;
use super::settle::{Settling, Written};
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
mod tests {
    use std::pin::pin;

    use futures_util::poll;
    use tokio::time::Instant;

    use super::*;
    use crate::engine::locked::counted;
    use crate::engine::settle::Settlement;
    use crate::engine::unanswered::{Claims, Unanswered, acked, acks, claimed, holding};

    const MIB: usize = 1 << 20;

    fn sizes(batch: &[Settling]) -> Vec<usize> {
        batch.iter().map(|one| one.bytes() / MIB).collect()
    }

    /// Of a handler that blocked its thread for longer than the drain and the last writes took.
    #[tokio::test]
    async fn a_result_that_nobody_takes_any_more_is_told_as_lost() {
        let results = Arc::<Results>::default();
        let sender = Sender::new(&results, &Arc::default(), &Arc::default());
        let store = holding(1).await;
        let (reader, counts) = counted(&Unanswered::new(&store, Claims::Answered).shared());
        let mut one = acked(&claimed(&store, 1).await, &reader).remove(0);
        one.report.dispatched(Instant::now(), 1, &reader.teller);
        drop(results);
        sender.send(Box::new(one)).await;
        drop(sender);
        let [subscriber] = &counts.subscribers()[..] else { panic!("there is one") };
        assert_eq!((subscriber.dispatched, subscriber.lease_lost), (1, 1));
    }

    #[tokio::test]
    async fn no_more_results_wait_than_there_is_memory_for() {
        let results = Arc::new(Results::default());
        let sender = Sender::new(&results, &Arc::default(), &Arc::default());
        for one in acks(&[MIB; 32]) {
            sender.send(Box::new(one)).await;
        }
        let mut late = pin!(sender.send(Box::new(acks(&[MIB]).remove(0))));
        assert!(poll!(late.as_mut()).is_pending());
        assert_eq!(results.next().await.unwrap().len(), 32);
        late.await;
        assert_eq!(sizes(&results.next().await.unwrap()), [1]);
    }

    #[tokio::test]
    async fn a_batch_ends_at_its_bytes_and_a_result_that_has_more_goes_alone() {
        let results = Arc::new(Results::default());
        let sender = Sender::new(&results, &Arc::default(), &Arc::default());
        for one in acks(&[20 * MIB, 11 * MIB]) {
            sender.send(Box::new(one)).await;
        }
        sender.send(Box::new(acks(&[40 * MIB]).remove(0))).await;
        assert_eq!(sizes(&results.next().await.unwrap()), [20, 11]);
        // Beside a write that hangs.
        assert_eq!(sizes(&results.next().await.unwrap()), [40]);
        for one in acks(&[10 * MIB, 10 * MIB, 11 * MIB, 10 * MIB]) {
            sender.send(Box::new(one)).await;
        }
        assert_eq!(sizes(&results.next().await.unwrap()), [10, 10, 11]);
    }

    async fn send(sender: &Sender, count: usize) {
        for one in acks(&vec![0; count]) {
            sender.send(Box::new(one)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn beside_a_write_that_hangs_one_result_goes_alone_but_no_dead_letter() {
        const HOUR: Duration = Duration::from_secs(3600);
        for (results, waits) in [(Results::default(), false), (Results::of_letters(), true)] {
            let results = Arc::new(results);
            let sender = Sender::new(&results, &Arc::default(), &Arc::default());
            send(&sender, 1).await;
            assert_eq!(results.next().await.unwrap().len(), 1);
            send(&sender, 1).await;
            let second = timeout(HOUR, results.next()).await;
            assert_eq!(second.is_err(), waits);
            send(&sender, HALF).await;
            let more = timeout(HOUR, results.next()).await.unwrap().unwrap();
            assert_eq!(more.len(), HALF + usize::from(waits));
            send(&sender, 1).await;
            // The one that hung is written: who wrote it asks again.
            results.written();
            results.written();
            if !waits {
                results.written();
            }
            assert_eq!(results.next().await.unwrap().len(), 1);
        }
    }

    /// Whoever wrote the last batch may be busy with letters that wait for a lock.
    #[tokio::test(start_paused = true)]
    async fn a_dead_letter_does_not_wait_for_who_wrote_the_last_one() {
        let results = Arc::new(Results::of_letters());
        let sender = Sender::new(&results, &Arc::default(), &Arc::default());
        send(&sender, 1).await;
        assert_eq!(results.next().await.unwrap().len(), 1);
        let mut other = pin!(results.next());
        send(&sender, 1).await;
        assert!(poll!(other.as_mut()).is_pending(), "a write is under way");
        results.written();
        let batch = timeout(Duration::from_secs(3600), other).await;
        assert_eq!(batch.unwrap().unwrap().len(), 1);
    }

    /// Or one of these would find the timer still there.
    #[tokio::test(start_paused = true)]
    async fn acks_of_timers_come_before_those_that_set_them_again() {
        let (results, timers) = (Arc::<Results>::default(), Arc::<Results>::default());
        let sender = Sender::new(&results, &Arc::default(), &timers);
        let mut ack = Box::new(acks(&[0]).remove(0)).ruled(Settlement::Ack { messages: vec![] });
        ack.timer = true;
        sender.send(ack).await;
        send(&sender, 1).await;
        for way in [timers, results] {
            let batch = timeout(Duration::from_secs(3600), way.next()).await;
            assert_eq!(batch.expect("one each").unwrap().len(), 1);
        }
    }
}
