//! Settlements that wait, because somebody else's lock keeps them from being written, or because
//! they get no answer even by themselves. They wait here so that no settler waits for the lock, and
//! no other row with it.

use std::collections::VecDeque;
use std::iter;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::extend::REST;
use super::results::Letters;
use super::settle::settle_some;
use super::settling::{Settling, Waits};
use super::timers::Held;
use super::write::{free, give_up_late, write};
use crate::store::{CLAIM_BYTES, Store};

/// The most rows of one statement.
const BATCH: usize = 1000;

/// Waiting settlements are not looked at more often than this.
const PACE: Duration = Duration::from_millis(100);
/// For how long acks are tried one by one: new results wait meanwhile, and for the last of them.
const ONE_BY_ONE: Duration = Duration::from_secs(1);

pub(super) struct Later {
    waiting: Vec<Settling>,
    backoff: Backoff,
    /// When to look at them again.
    at: Instant,
    /// Some of them are being written: what comes back now does not come for the first time.
    trying: bool,
    /// Acks that set timers are tried one by one the next time, and not together.
    one_by_one: bool,
    /// Cancelled when nothing is written any more.
    over: CancellationToken,
    /// Where acks go that have become dead letters. `None` where these are written as any other.
    pub(super) letters: Option<Letters>,
}

impl Later {
    pub(super) fn new(over: CancellationToken) -> Self {
        let (backoff, at, letters) = (Backoff::of_errors(), Instant::now(), None);
        Self { waiting: Vec::new(), backoff, at, trying: false, one_by_one: false, over, letters }
    }

    /// Whether nothing is written any more.
    pub(super) fn is_over(&self) -> bool {
        self.over.is_cancelled()
    }

    /// Does the work; `None` when nothing is written any more.
    pub(super) async fn unless_over<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.over.run_until_cancelled(work).await
    }

    pub(super) fn waiting(&self) -> &[Settling] {
        &self.waiting
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the settler must take no more batches. Waiting settlements are limited by their
    /// bytes, and not by their number: there may be as many as the process had in hand when
    /// somebody locked them, and what others handle must be written meanwhile. Only acks that set a
    /// timer which somebody holds are limited in number. Their rows are free, so there would be no
    /// end of such acks.
    pub(super) fn is_full(&self) -> bool {
        let bytes = |one: &Settling| size_of::<Settling>() + one.bytes();
        self.waiting.iter().map(bytes).sum::<usize>() >= CLAIM_BYTES
            || self.waiting.iter().filter(|one| one.sets_timers()).count() >= BATCH
    }

    pub(super) fn add(&mut self, locked: Vec<Settling>) {
        if locked.is_empty() {
            return;
        }
        let first = self.is_empty() && !self.trying;
        let now = Instant::now();
        // Others may have waited for long, and these may not have so much time.
        self.at = self.at.min(now + half_left(&locked, now).max(PACE));
        self.waiting.extend(locked);
        if first {
            self.backoff.reset();
            self.rest();
        }
    }

    /// Sets the time of the next look. At the latest it is when half of the time has passed that is
    /// left for the most urgent of them.
    fn rest(&mut self) {
        let now = Instant::now();
        let half = half_left(&self.waiting, now).max(PACE);
        self.at = now + self.backoff.after(true).min(half);
    }

    pub(super) async fn is_due(&self) {
        self.unless_over(sleep_until(self.at)).await;
    }

    /// Writes the rows that are free by now, and returns how many landed. The others wait on until
    /// their leases are over. To ask whether a row is free extends its lease; an ack that waits for a
    /// timer waits for as long as that goes on.
    pub(super) async fn again<S: Store>(&mut self, store: &S) -> usize {
        let mut waiting = std::mem::take(&mut self.waiting);
        let to_give_back = give_up_late(&mut waiting, self.is_over());
        waiting.extend(to_give_back);
        let mut free_ones = VecDeque::with_capacity(waiting.len());
        let mut parts: Vec<_> = waiting.chunks_mut(BATCH).rev().collect();
        while let Some(some) = parts.pop() {
            match self.unless_over(free(store, some)).await {
                Some(Ok(free)) => free_ones.extend(free),
                Some(Err(failed)) if failed.took_too_long && some.len() > 1 => {
                    self.unless_over(sleep(REST)).await;
                    let (one, other) = some.split_at_mut(some.len() / 2);
                    parts.extend([other, one]);
                }
                // Where the database does not tell, rows that had no answer are tried all the same.
                // It would not tell of the others either.
                _ => {
                    let left = iter::once(some).chain(parts.drain(..).rev()).flatten();
                    free_ones.extend(left.map(|one| one.unanswered));
                }
            }
        }
        let is_free = |_: &mut Settling| free_ones.pop_front().unwrap_or_default();
        let mut now: Vec<_> = waiting.extract_if(.., is_free).collect();
        self.waiting = waiting;
        self.trying = true;
        // A timer that somebody holds keeps all acks of a statement from being written. By itself,
        // each takes a statement, and those that wait a while.
        let one_by_one = |one: &mut Settling| self.one_by_one && one.sets_timers();
        let each: Vec<_> = now.extract_if(.., one_by_one).collect();
        self.one_by_one = !self.one_by_one;
        let mut landed = 0;
        while !now.is_empty() {
            let rest = now.split_off(now.len().min(BATCH));
            landed += settle_some(store, std::mem::replace(&mut now, rest), self).await;
        }
        landed += self.try_each(store, each).await;
        self.trying = false;
        self.rest();
        landed
    }

    /// Tries acks one by one, for a while. Those that are left are the first the next time, but
    /// behind new ones.
    async fn try_each<S: Store>(&mut self, store: &S, mut acks: Vec<Settling>) -> usize {
        let (now, first) = (Instant::now(), self.waiting.len());
        acks.sort_by_key(|one| (!one.acks_timer(), one.waits));
        let until = now + half_left(&acks, now).min(ONE_BY_ONE);
        let (mut acks, mut held, mut landed) = (acks.into_iter(), Held::default(), 0);
        while Instant::now() < until
            && let Some(one) = acks.next()
        {
            if let Some(mut one) = held.behind(vec![one], self).pop() {
                one.waits = Waits::Long;
                landed += write(store, vec![one], self).await;
            }
        }
        let left = held.behind(acks.collect(), self);
        self.waiting.splice(first..first, left);
        landed
    }
}

/// Half of the time that is left for the most urgent of them.
fn half_left(waiting: &[Settling], now: Instant) -> Duration {
    let left = waiting.iter().map(|one| one.late_at().saturating_duration_since(now));
    left.min().unwrap_or_default() / 2
}

/// Writes a batch until its leases are over.
#[cfg(feature = "testing")]
pub(crate) async fn settle<S: Store>(store: &S, batch: Vec<Settling>) -> usize {
    settle_until(store, batch, CancellationToken::new()).await
}

/// Writes a batch, one statement for each kind, and closes each delivery when its write has landed.
/// What has not landed when `over` is cancelled is left to another claim. Returns how many landed.
///
/// # Cancel safety
/// A dropped call may have written any part. What it has not written comes back when its lease runs
/// out.
pub(super) async fn settle_until<S: Store>(
    store: &S,
    batch: Vec<Settling>,
    over: CancellationToken,
) -> usize {
    let mut later = Later::new(over);
    let landed = settle_some(store, batch, &mut later).await;
    landed + settle_rest(store, later).await
}

pub(super) async fn settle_rest<S: Store>(store: &S, mut later: Later) -> usize {
    let mut landed = 0;
    while !later.is_empty() {
        later.is_due().await;
        landed += later.again(store).await;
    }
    landed
}
