//! What the engine lends to a run: a transaction, and a thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use super::Lent;
use super::thread::Thread;
use crate::message::Row;
use crate::publish::Prepared;
use crate::unpoisoned::Locked as _;

/// What was lent to a handler that takes `Tx`, or that is a plain fn. The messages of a batch
/// share one loan.
#[derive(Default)]
pub(crate) struct Loan {
    pub(crate) thread: Thread,
    pub(crate) lent: OnceLock<Arc<dyn Lent>>,
    /// True while the transaction is open and nobody else can write, as on SQLite. The leases of
    /// the run can neither be extended nor taken over until it ends.
    sole_writer: AtomicBool,
    /// Since when the handler waits for its transaction, and how long it took to begin. The handler
    /// has done nothing by then.
    begins: Mutex<(Option<Instant>, Duration)>,
    /// Queue and name of each timer among the messages that share the loan.
    timers: OnceLock<Vec<(String, String)>>,
    /// What was published in the transaction, for a rehearsal.
    pub(crate) rehearsed: OnceLock<Arc<Mutex<Vec<Prepared>>>>,
}

impl Loan {
    /// Tells which messages share the loan.
    pub(crate) fn share<'a>(&self, rows: impl Iterator<Item = &'a Row>) {
        let timers: Vec<_> = rows.filter_map(Self::timer_of).collect();
        if !timers.is_empty() {
            let _ = self.timers.set(timers);
        }
    }

    fn timer_of(row: &Row) -> Option<(String, String)> {
        row.timer_id.as_ref().map(|timer| (row.queue.clone(), timer.clone()))
    }

    /// The timers that the transaction settles. `own` is the message that asks for it.
    pub(crate) fn timers(&self, own: &Row) -> Vec<(String, String)> {
        self.timers.get().cloned().unwrap_or_else(|| Self::timer_of(own).into_iter().collect())
    }

    pub(crate) fn begin_sole_writing(&self) {
        self.sole_writer.store(true, Ordering::SeqCst);
    }

    /// The transaction counts as beginning until the returned value is dropped.
    pub(crate) fn begin(&self) -> Beginning<'_> {
        self.begins.locked().0 = Some(Instant::now());
        Beginning(self)
    }

    /// Whether the handler waits for its transaction.
    pub(crate) fn is_beginning(&self) -> bool {
        self.begins.locked().0.is_some()
    }

    /// How long the transaction took to begin.
    pub(crate) fn began_in(&self) -> Duration {
        self.begins.locked().1
    }

    pub(crate) fn is_sole_writer(&self) -> bool {
        self.sole_writer.load(Ordering::SeqCst)
    }
}

/// A transaction that was asked for and is not there yet.
pub(crate) struct Beginning<'a>(&'a Loan);

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        let mut begins = self.0.begins.locked();
        begins.1 = begins.0.take().map_or(begins.1, |since| since.elapsed());
    }
}
