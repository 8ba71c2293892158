//! Running alone.
//!
//! When a process dies, every row it had in hand comes back with an expired
//! lease, the innocent with the guilty. A row that has used up its
//! `max_deliveries` that way is not judged yet: it runs once more with no other
//! handler beside it, under a token that says so. If that lease expires too, the
//! row itself is what kills processes. One that takes long is not alone for ever:
//! see `solitude`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, Notify};
use tokio::time::{Instant, sleep, timeout_at};

use super::backoff::Backoff;
use crate::store::{Extend, Lease, Store};

/// How long others are kept from starting while a row waits to be alone. When
/// it passes, because some handler runs on, the row runs beside it and nothing
/// is concluded.
const PATIENCE: Duration = Duration::from_secs(5);

/// Counts the handlers that run, and lets one run alone.
#[derive(Default)]
pub(crate) struct Quiet {
    running: AtomicUsize,
    /// How many wait to be alone, or are. Nobody else starts meanwhile.
    wanted: AtomicUsize,
    /// One at a time is alone.
    turn: Mutex<()>,
    /// Wakes who waits for handlers to end.
    ended: Notify,
    /// Wakes who waits to start.
    free: Notify,
}

/// Handlers that run, however they end.
pub(super) struct Running<'a> {
    quiet: &'a Quiet,
    these: usize,
}

/// No other handler starts as long as it is there.
pub(super) struct Alone<'a> {
    quiet: &'a Quiet,
    _turn: MutexGuard<'a, ()>,
}

impl Quiet {
    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    /// Counts them, whoever wants to be alone.
    pub(super) fn count(&self, these: usize) -> Running<'_> {
        self.running.fetch_add(these, Ordering::SeqCst);
        Running { quiet: self, these }
    }

    /// Counts them if nobody wants to be alone.
    pub(super) fn count_beside(&self, these: usize) -> Option<Running<'_>> {
        let running = self.count(these);
        (self.wanted.load(Ordering::SeqCst) == 0).then_some(running)
    }

    /// Counts them when nobody wants to be alone.
    pub(super) async fn beside_others(&self, these: usize) -> Running<'_> {
        loop {
            if let Some(running) = self.count_beside(these) {
                return running;
            }
            let free = self.free.notified();
            if self.wanted.load(Ordering::SeqCst) > 0 {
                free.await;
            }
        }
    }

    pub(super) async fn alone(&self) -> Option<Alone<'_>> {
        let until = Instant::now() + PATIENCE;
        let turn = timeout_at(until, self.turn.lock()).await.ok()?;
        self.wanted.fetch_add(1, Ordering::SeqCst);
        let alone = Alone { quiet: self, _turn: turn };
        let quiet = async {
            loop {
                let ended = self.ended.notified();
                if self.running() == 0 {
                    return;
                }
                ended.await;
            }
        };
        timeout_at(until, quiet).await.ok().map(|()| alone)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.quiet.running.fetch_sub(self.these, Ordering::SeqCst);
        if self.quiet.wanted.load(Ordering::SeqCst) > 0 {
            self.quiet.ended.notify_waiters();
        }
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.quiet.wanted.fetch_sub(1, Ordering::SeqCst);
        self.quiet.free.notify_waiters();
    }
}

/// Continues a lease under a token that says "alone". False when the lease is lost;
/// `None` when the database has not answered, and may have done it or do it yet.
///
/// A try without an answer is repeated: if it had landed unnoticed, the row would
/// be found guilty later without having been started.
pub(super) async fn mark<S: Store>(
    store: &S,
    lease: Lease,
    marked: Lease,
    deadline: Instant,
) -> Option<bool> {
    let token = marked.token;
    let either = [Extend { lease, token }, Extend { lease: marked, token }];
    let mut backoff = Backoff::of_errors();
    loop {
        match store.extend(&either).await {
            Ok(landed) if landed.contains(&true) => return Some(true),
            // Or somebody else has the row locked.
            Ok(_) => match store.held(&[lease, marked]).await {
                Ok(held) if !held.contains(&true) => return Some(false),
                Err(failed) if !failed.transient => return None,
                _ => {}
            },
            Err(failed) if !failed.transient => return None,
            Err(_) => {}
        }
        if Instant::now() >= deadline {
            return None;
        }
        sleep(backoff.after(true)).await;
    }
}
