//! Claimed rows of one subscriber that wait for a worker.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::store::Claimed;
use crate::subscriber::Batching;

/// A claimed row with the time until which it may be started.
pub(crate) struct Job {
    pub(crate) claimed: Claimed,
    /// Taken before the claim was sent, so it is never later than the
    /// database's idea of the lease.
    pub(crate) claimed_at: Instant,
    pub(crate) deadline: Instant,
}

pub(crate) struct Inbox {
    /// A std mutex, because it is never held over an await; the critical
    /// sections push and pop.
    state: Mutex<State>,
    /// Wakes workers: one permit a row, all of them when closed.
    filled: Notify,
    /// Wakes the claim loop when a place became free.
    drained: Notify,
    /// Rows that can run at once.
    runs: usize,
    /// The most rows that wait beside them, so that no worker waits for a claim.
    batch: usize,
    /// A row that waits longer is not started.
    lease_ttl: Duration,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// Waiting and running. Invariant: at most `runs + batch`.
    in_hand: usize,
    /// How long a run takes, as far as it is known.
    pace: Duration,
    closed: bool,
}

impl Inbox {
    pub(crate) fn new(runs: usize, batch: usize, lease_ttl: Duration) -> Self {
        Self {
            state: Mutex::default(),
            filled: Notify::new(),
            drained: Notify::new(),
            runs,
            batch,
            lease_ttl,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many rows to claim, once half a batch has room: a claim for every
    /// freed place would be a statement a message.
    pub(super) async fn room(&self) -> usize {
        loop {
            let (capacity, in_hand) = {
                let state = self.state();
                (self.capacity(state.pace), state.in_hand)
            };
            let free = capacity.saturating_sub(in_hand);
            // Of slow handlers few rows are held: then half of those.
            if free >= self.batch.div_ceil(2).min(capacity.div_ceil(2)) {
                return free.min(self.batch);
            }
            self.drained.notified().await;
        }
    }

    /// The rows that run, and as many to wait as will be started within half a
    /// lease.
    fn capacity(&self, pace: Duration) -> usize {
        let rounds = self.lease_ttl.as_secs_f64() / (2.0 * pace.as_secs_f64().max(1e-6));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded")]
        let reached = (self.runs as f64 * rounds).min(self.batch as f64) as usize;
        self.runs.saturating_add(reached)
    }

    pub(super) fn push(&self, jobs: Vec<Job>) {
        let count = jobs.len();
        let mut state = self.state();
        state.in_hand += count;
        state.waiting.extend(jobs);
        drop(state);
        for _ in 0..count {
            self.filled.notify_one();
        }
    }

    /// The next rows: at least one, and as many of a batch as come in its time.
    /// `None` when closed; rows that still waited then were taken by
    /// [`Inbox::close`].
    pub(super) async fn next(&self, batch: Batching) -> Option<Vec<Job>> {
        let mut jobs = vec![self.one().await?];
        let end = Instant::now() + batch.wait;
        while jobs.len() < batch.size {
            match timeout_at(end, self.one()).await {
                Ok(Some(job)) => jobs.push(job),
                // Closed, or late: what is here is run, or given back.
                Ok(None) | Err(_) => break,
            }
        }
        Some(jobs)
    }

    async fn one(&self) -> Option<Job> {
        loop {
            // Registered before looking, so that no wake falls in between.
            let filled = self.filled.notified();
            {
                let mut state = self.state();
                if let Some(job) = state.waiting.pop_front() {
                    // A permit may have been merged with another: pass it on.
                    if !state.waiting.is_empty() {
                        self.filled.notify_one();
                    }
                    return Some(job);
                }
                if state.closed {
                    return None;
                }
            }
            filled.await;
        }
    }

    /// Rows that wait or run; once closed, those that run.
    pub(super) fn in_hand(&self) -> usize {
        self.state().in_hand
    }

    /// Rows that `next` gave out are dealt with, in one run of this length.
    pub(super) fn done(&self, rows: usize, took: Duration) {
        let mut state = self.state();
        state.in_hand -= rows;
        // Follows a change within a few runs, and no single one.
        state.pace = if state.pace.is_zero() { took } else { (3 * state.pace + took) / 4 };
        drop(state);
        self.drained.notify_one();
    }

    /// No more rows; returns those that no worker has taken.
    pub(super) fn close(&self) -> Vec<Job> {
        let mut state = self.state();
        state.closed = true;
        let waiting: Vec<Job> = std::mem::take(&mut state.waiting).into();
        state.in_hand -= waiting.len();
        drop(state);
        self.filled.notify_waiters();
        waiting
    }
}
