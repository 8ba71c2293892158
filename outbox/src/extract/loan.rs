//! What the engine lends to a run: a transaction, and a thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use super::thread::Thread;
use super::{Delivery, Lent};
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
    /// When the first of the messages that share the loan expires.
    expires: OnceLock<Instant>,
    /// The run leaves out what has expired by itself.
    pub(crate) sorts_out: AtomicBool,
    /// What was published in the transaction, for a rehearsal.
    pub(crate) rehearsed: OnceLock<Arc<Mutex<Vec<Prepared>>>>,
}

impl Loan {
    /// Tells which messages share the loan.
    pub(crate) fn share<'a>(&self, messages: impl Iterator<Item = &'a Delivery> + Clone) {
        let timer = |it: &Delivery| Some((it.row.queue.clone(), it.row.timer_id.clone()?));
        let timers: Vec<_> = messages.clone().filter_map(timer).collect();
        if !timers.is_empty() {
            let _ = self.timers.set(timers);
        }
        if let Some(first) = messages.filter_map(Delivery::expires).min() {
            let _ = self.expires.set(first);
        }
    }

    /// Whether the time of a message that shares the loan is over.
    pub(super) fn has_expired(&self) -> bool {
        self.expires.get().is_some_and(|at| *at <= Instant::now())
    }

    /// Whether the transaction settles this timer. `own` is the message that asked for it.
    pub(crate) fn settles(&self, own: &Row, queue: &str, timer_id: &str) -> bool {
        match self.timers.get() {
            Some(timers) => timers.iter().any(|(of, timer)| of == queue && timer == timer_id),
            None => own.queue == queue && own.timer_id.as_deref() == Some(timer_id),
        }
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
