//! The inbox of one subscriber: claimed rows that wait for a worker. The claimer fills it, and
//! workers take rows from it.
//!
//! The inbox also says how many rows the next claim may take. There should be enough that no worker
//! waits for a claim, and no more than will be started soon: another process could run the rest.
//! Rows that no worker comes to in time are given back.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::lease::margin;
use super::leave_to_others;
use crate::store::{CLAIM_BYTES, Claimed};
use crate::subscriber::{Batching, Few};
use crate::unpoisoned::Locked as _;

/// A claimed row, and until when it may be started.
pub(crate) struct Job {
    pub(crate) claimed: Claimed,
    /// Not earlier than the claim itself, so that nobody takes a message for older than it is.
    pub(crate) claimed_at: Instant,
    /// Counted from before the claim was sent, so it is never later than the end of the lease by
    /// the database's clock.
    pub(crate) deadline: Instant,
}

/// How far ahead of the handlers rows are claimed. It is many times what a claim takes, and short
/// enough not to hoard rows that another process could run.
const REACH: Duration = Duration::from_millis(100);
/// The most rows of one claim: more rows do not make a claim cheaper.
const CLAIM: usize = 1000;
/// Rows that may wait at first, while nothing is known about the handler.
const FIRST: usize = 10;
/// Bytes that may wait, judging by the size of the last rows.
const BYTES: usize = CLAIM_BYTES;

pub(crate) struct Inbox {
    /// A std mutex, because it is never held over an await. The critical sections only push and
    /// pop.
    state: Mutex<State>,
    /// Wakes idle workers: one for each row, and all of them when the inbox is closed.
    filled: Notify,
    /// Where batches wait for more rows, held by the worker that waits for the rows of its batch,
    /// the first one included. Rows that come one by one would otherwise wake the other workers in
    /// turn, and each would begin a run of its own.
    gathers: tokio::sync::Mutex<()>,
    /// Cancelled when nothing starts any more: no batch waits for more rows.
    ending: CancellationToken,
    /// Makes the claimer look when there is room again.
    changed: Arc<Notify>,
    /// Rows that can run at once.
    runs: usize,
    /// The most rows that wait beside the running ones, so that no worker waits for a claim.
    ahead: usize,
    /// Rows of one run. As many may wait however long runs take: the next worker would otherwise
    /// have little to begin with.
    batch: usize,
    /// A row should not wait much longer than this for a worker.
    reach: Duration,
    /// A row does not start later than this after its claim.
    patience: Duration,
    /// What is left of its lease then.
    margin: Duration,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// Rows that wait, rows that run, and places reserved for claims under way.
    /// Invariant: at most `runs + ahead`.
    in_hand: usize,
    /// Of these, the places reserved for claims under way.
    reserved: usize,
    /// Places that workers with less than a full batch could still fill. No rows are claimed for
    /// them until their runs end.
    unfilled: usize,
    /// Rows that workers have and that do not run: they wait to begin, or their results wait for
    /// room.
    ended: usize,
    /// Workers that wait for rows.
    idle: usize,
    /// The claimer wants to be told when there is room.
    wanted: bool,
    /// How long a run takes, as far as is known. Once rows have waited in vain for a worker, it is
    /// at least [`Inbox::too_slow`].
    pace: Duration,
    /// How many bytes a row has, as far as is known.
    size: usize,
    closed: bool,
}

impl Inbox {
    pub(crate) fn new(
        runs: usize,
        ahead: usize,
        batch: usize,
        lease_ttl: Duration,
        changed: &Arc<Notify>,
    ) -> Self {
        Self {
            state: Mutex::default(),
            filled: Notify::new(),
            gathers: tokio::sync::Mutex::default(),
            ending: CancellationToken::new(),
            changed: Arc::clone(changed),
            runs,
            ahead,
            batch,
            reach: REACH.min(lease_ttl / 2),
            patience: 2 * margin(lease_ttl),
            margin: margin(lease_ttl),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// Reserves places for the rows of a claim, `most` of them at most. It returns `None` while
    /// more than half of the rows that may wait do so, unless there is room for a whole claim: a
    /// claim for every freed place would be a statement for every message.
    pub(super) fn reserve(&self, most: usize) -> Option<usize> {
        let mut state = self.state();
        let room = self.room(&state);
        state.wanted = room == 0;
        let rows = room.min(self.ahead).min(CLAIM).min(most);
        state.in_hand += rows;
        state.reserved += rows;
        (rows > 0).then_some(rows)
    }

    fn room(&self, state: &State) -> usize {
        let capacity = self.capacity(state);
        let free = capacity.saturating_sub(state.in_hand + state.unfilled);
        let enough = free >= (capacity - self.runs).div_ceil(2) || free >= CLAIM;
        if enough { free } else { 0 }
    }

    /// How many rows may be in hand: the rows that run, and as many waiting ones as will be started
    /// soon. While nothing is known about the handler, as many may wait as can run, or [`FIRST`] if
    /// that is more. None may wait where even the next worker would come to them too late.
    fn capacity(&self, state: &State) -> usize {
        let ahead = self.ahead.min(BYTES / state.size.max(1));
        let too_slow = state.pace >= self.too_slow();
        // A row that alone is larger than all that may wait does not wait either.
        if ahead == 0 || too_slow {
            return self.runs;
        }
        let reached = if state.pace.is_zero() {
            self.runs.max(FIRST).min(ahead)
        } else {
            let rounds = self.reach.as_secs_f64() / state.pace.as_secs_f64();
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded")]
            let reached = (self.runs as f64 * rounds).min(ahead as f64) as usize;
            reached
        };
        self.runs.saturating_add(reached.max(self.batch.min(ahead)))
    }

    /// Takes the rows of a claim that reserved `reserved` places.
    pub(super) fn fill(&self, reserved: usize, jobs: impl ExactSizeIterator<Item = Job>) {
        let count = jobs.len();
        let mut state = self.state();
        state.in_hand -= reserved - count;
        state.reserved -= reserved;
        let (mut bytes, fresh) = (0, state.waiting.len());
        state.waiting.extend(jobs.inspect(|job| bytes += job.claimed.row.bytes()));
        // A claim that waited long for its answer was sent before those that overtook it.
        let is_earlier = |job: &Job| fresh > 0 && job.deadline < state.waiting[fresh - 1].deadline;
        if state.waiting.get(fresh).is_some_and(is_earlier) {
            state.waiting.make_contiguous().sort_by_key(|job| job.deadline);
        }
        if let Some(size) = bytes.checked_div(count) {
            // Larger rows count at once, smaller ones bit by bit.
            state.size = size.max((3 * state.size + size) / 4);
        }
        let idle = state.idle;
        drop(state);
        for _ in 0..count.min(idle) {
            self.filled.notify_one();
        }
    }

    /// A worker has dealt with its last rows; it gets the next row, if one is there. `last` says
    /// how many rows it had, and how long their run took if there was one: rows that were given
    /// back or had expired say nothing about the handler. A handler of batches gets its rows from
    /// [`Inbox::next`].
    ///
    /// Also says whether this woke the claimer or another worker: they have to run though the next
    /// handler may block.
    pub(super) fn turn(
        &self,
        last: Option<(usize, Option<Duration>)>,
        batch: Batching,
    ) -> (Option<Few<Job>>, bool) {
        let mut state = self.state();
        let mut room = false;
        if let Some((rows, took)) = last {
            state.in_hand -= rows;
            state.unfilled -= batch.size - rows;
            // Follows a change within a few runs, but not a single run.
            if let Some(took) = took {
                let known = !state.pace.is_zero();
                state.pace = if known { (3 * state.pace + took) / 4 } else { took };
            }
            room = state.wanted && self.room(&state) > 0;
            state.wanted &= !room;
        }
        let (jobs, wakes) =
            if batch.size == 1 { self.pop(&mut state, 1) } else { (Few::new(), false) };
        drop(state);
        if room {
            self.changed.notify_one();
        }
        ((!jobs.is_empty()).then_some(jobs), room || wakes)
    }

    /// The next rows: at least one, and as many for a batch as come in its time. `None` when the
    /// inbox is closed; rows that still waited then were taken by [`Inbox::close`].
    pub(super) async fn next(&self, batch: Batching) -> Option<Few<Job>> {
        let gathers = if batch.wait.is_zero() { None } else { Some(self.gathers.lock().await) };
        let mut jobs = self.some(batch.size).await?;
        if jobs.len() < batch.size {
            Box::pin(self.complete(&mut jobs, batch)).await;
            self.state().unfilled += batch.size - jobs.len();
        }
        if gathers.is_some() {
            // This wakes whoever gathers next, though the handler of these may block.
            drop(gathers);
            leave_to_others();
        }
        Some(jobs)
    }

    async fn complete(&self, jobs: &mut Few<Job>, batch: Batching) {
        let begun = Instant::now();
        let mut not_yet = self.ended(jobs.len());
        let mut end = self.gathers_until(jobs, begun).min(begun + batch.wait);
        while jobs.len() < batch.size {
            let more = self.ending.run_until_cancelled(self.some(batch.size - jobs.len()));
            // Ending, closed, or out of time: the rows that are here run, or are given back.
            let Ok(Some(Some(more))) = timeout_at(end, more).await else { break };
            end = end.min(self.gathers_until(&more, begun));
            self.state().ended += more.len();
            not_yet.rows += more.len();
            jobs.extend(more);
        }
    }

    /// Until when these rows may wait for others. Rows that waited for a worker before may wait no
    /// longer than fresh ones: until half of their lease is over, which is a while before they
    /// would be given back.
    fn gathers_until(&self, jobs: &[Job], now: Instant) -> Instant {
        let until = |job: &Job| job.deadline.checked_sub(self.margin * 3 / 2).unwrap_or(now);
        jobs.iter().map(until).min().unwrap_or(now)
    }

    /// Takes rows out. Also says whether that woke another worker.
    fn pop(&self, state: &mut State, most: usize) -> (Few<Job>, bool) {
        let mut jobs = Few::new();
        while jobs.len() < most
            && let Some(job) = state.waiting.pop_front()
        {
            jobs.push(job);
        }
        // One wake may have been merged with another, so it is passed on.
        let wakes = !jobs.is_empty() && !state.waiting.is_empty() && state.idle > 0;
        if wakes {
            self.filled.notify_one();
        }
        (jobs, wakes)
    }

    /// At least one row. Rows that came together stay together: the other workers are awake too.
    async fn some(&self, most: usize) -> Option<Few<Job>> {
        loop {
            // Registered before looking, so that no wake is missed in between.
            let filled = self.filled.notified();
            let _idle = {
                let mut state = self.state();
                let (jobs, wakes) = self.pop(&mut state, most);
                if wakes {
                    leave_to_others();
                }
                if !jobs.is_empty() {
                    return Some(jobs);
                }
                if state.closed {
                    return None;
                }
                state.idle += 1;
                Idle(self)
            };
            filled.await;
        }
    }

    /// When runs take this long, none of them ends in time for the next row.
    fn too_slow(&self) -> Duration {
        let workers = self.runs / self.batch.max(1);
        self.patience.saturating_mul(u32::try_from(workers).unwrap_or(u32::MAX))
    }

    /// Takes out the rows that no worker has come to in time, and says when to ask next.
    pub(super) fn late(&self, now: Instant) -> (Vec<Job>, Option<Instant>) {
        let until = |job: &Job| job.deadline.checked_sub(self.margin).unwrap_or(now);
        let mut state = self.state();
        let late = state.waiting.iter().take_while(|job| until(job) <= now).count();
        let jobs: Vec<Job> = state.waiting.drain(..late).collect();
        if late > 0 {
            state.in_hand -= late;
            state.pace = state.pace.max(self.too_slow());
        }
        (jobs, state.waiting.front().map(until))
    }

    /// Rows that wait or run, and places reserved for more.
    pub(super) fn in_hand(&self) -> usize {
        self.state().in_hand
    }

    /// Rows that run.
    pub(super) fn running(&self) -> usize {
        let state = self.state();
        state.in_hand - state.reserved - state.waiting.len() - state.ended
    }

    /// These rows of a worker do not run as long as the returned guard lives.
    pub(super) fn ended(&self, rows: usize) -> Ended<'_> {
        self.state().ended += rows;
        Ended { inbox: self, rows }
    }

    /// Of a worker's `rows` only `these` run as long as the guard lives.
    pub(super) fn all_but(&self, rows: usize, these: usize) -> Option<Ended<'_>> {
        (rows > these).then(|| self.ended(rows - these))
    }

    /// Ends the wait of a batch for more rows. A worker would keep the rows that it has until the
    /// inbox is closed, which may be long after: a claim may still bring rows.
    pub(super) fn end_gathering(&self) {
        self.ending.cancel();
    }

    /// Closes the inbox, and returns the rows that no worker has taken.
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

/// A worker that waits for rows, until this is dropped.
struct Idle<'a>(&'a Inbox);

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.0.state().idle -= 1;
    }
}

/// Rows of a worker that do not run, until this is dropped.
pub(super) struct Ended<'a> {
    inbox: &'a Inbox,
    rows: usize,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.inbox.state().ended -= self.rows;
    }
}

#[cfg(test)]
mod tests;
