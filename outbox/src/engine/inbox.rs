//! Claimed rows of one subscriber that wait for a worker.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    /// A row for every worker, and a batch that waits, so that no worker waits
    /// for a claim.
    capacity: usize,
    batch: usize,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// Waiting and running. Invariant: at most `capacity`.
    in_hand: usize,
    closed: bool,
}

impl Inbox {
    pub(crate) fn new(workers: usize, batch: usize) -> Self {
        Self {
            state: Mutex::default(),
            filled: Notify::new(),
            drained: Notify::new(),
            capacity: workers.saturating_add(batch),
            batch,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many rows to claim, once half a batch has room: a claim for every
    /// freed place would be a statement a message.
    pub(super) async fn room(&self) -> usize {
        loop {
            let free = self.capacity - self.state().in_hand;
            if free >= self.batch.div_ceil(2) {
                return free.min(self.batch);
            }
            self.drained.notified().await;
        }
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

    /// Rows that `next` gave out are dealt with.
    pub(super) fn done(&self, rows: usize) {
        self.state().in_hand -= rows;
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
