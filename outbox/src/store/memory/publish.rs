//! Publishing in memory, in a transaction that undoes what it wrote unless it is committed.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{MemoryStore, Stored, Tables};
use crate::message::Row;
use crate::message::row::{from_micros, to_micros};
use crate::publish::sealed::{self, On};
use crate::publish::{Due, Prepared, Published};
#[cfg(feature = "sqlite")]
use crate::store::Lease;

/// An open transaction over a `MemoryStore`. Dropping it rolls back.
///
/// The `TestBroker` has no transactions of its own; the conformance suite runs on these.
pub struct MemoryTransaction {
    store: MemoryStore,
    id: u64,
    undo: Vec<Undo>,
}

/// A row as it was before this transaction touched it.
pub(super) struct Undo {
    id: i64,
    before: Option<Row>,
}

impl MemoryStore {
    pub fn begin(&self) -> MemoryTransaction {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        MemoryTransaction { store: self.clone(), id, undo: Vec::new() }
    }

    /// Rows of a queue that no transaction has open, in order of (due time, id).
    pub fn pending(&self, queue: &str, limit: usize) -> Vec<Row> {
        let tables = self.tables();
        let seen = tables.rows.values().filter(|stored| stored.locked_by.is_none());
        let rows = seen.map(|stored| &stored.row).filter(|row| row.queue == queue);
        let mut rows: Vec<Row> = rows.cloned().collect();
        rows.sort_by_key(|row| (row.next_attempt_at, row.id));
        rows.truncate(limit);
        rows
    }
}

impl MemoryTransaction {
    pub fn commit(mut self) {
        self.undo.clear();
    }

    /// A mark for [`MemoryTransaction::rollback_to`].
    pub fn savepoint(&self) -> usize {
        self.undo.len()
    }

    pub fn rollback_to(&mut self, savepoint: usize) {
        let mut tables = self.store.tables();
        for Undo { id, before } in self.undo.drain(savepoint..).rev() {
            match before {
                Some(row) => {
                    tables.rows.insert(id, Stored { row, locked_by: Some(self.id) });
                }
                None => {
                    tables.rows.remove(&id);
                }
            }
        }
    }
}

impl Drop for MemoryTransaction {
    fn drop(&mut self) {
        self.rollback_to(0);
        for stored in self.store.tables().rows.values_mut() {
            if stored.locked_by == Some(self.id) {
                stored.locked_by = None;
            }
        }
    }
}

impl sealed::Transaction for MemoryTransaction {
    fn on(&mut self) -> On<'_> {
        On::Memory(self)
    }
}

impl MemoryTransaction {
    pub(crate) fn insert(&mut self, message: &Prepared) -> Published {
        let mut tables = self.store.tables();
        let (published, undo) = tables.insert(message.clone(), Some(self.id));
        self.undo.extend(undo);
        published
    }

    pub(crate) fn insert_batch(&mut self, messages: &[&Prepared]) -> Vec<Published> {
        messages.iter().map(|message| self.insert(message)).collect()
    }

    pub(crate) fn cancel_timer(&mut self, queue: &str, timer_id: &str) -> bool {
        let Some(before) = self.store.tables().cancel(queue, timer_id) else { return false };
        self.undo.push(Undo { id: before.id, before: Some(before) });
        true
    }

    /// No trigger leaves rows out here.
    #[allow(clippy::unused_self, reason = "it is called as those of the databases are")]
    pub(crate) fn holds_timers(&self, timers: &[&Prepared]) -> Vec<bool> {
        vec![true; timers.len()]
    }
}

/// For the transactions of another database that the test broker lends to a handler.
#[cfg(feature = "sqlite")]
impl MemoryStore {
    /// Whether this lease still holds its row.
    pub(crate) fn holds(&self, lease: Lease) -> bool {
        self.tables().leased(lease).is_some()
    }

    /// Whether there is a timer that could be cancelled.
    pub(crate) fn waits(&self, queue: &str, timer_id: &str) -> bool {
        let tables = self.tables();
        let timer = tables.timer(queue, timer_id).and_then(|id| tables.rows.get(&id));
        timer.is_some_and(|stored| stored.row.acquired_token.is_none())
    }

    pub(crate) fn cancel(&self, queue: &str, timer_id: &str) {
        self.tables().cancel(queue, timer_id);
    }
}

impl Tables {
    /// Takes the row of a timer away, unless somebody works on it.
    fn cancel(&mut self, queue: &str, timer_id: &str) -> Option<Row> {
        let id = self.timer(queue, timer_id)?;
        let free = self.rows[&id].row.acquired_token.is_none();
        free.then(|| self.rows.remove(&id))?.map(|stored| stored.row)
    }

    fn timer(&self, queue: &str, timer_id: &str) -> Option<i64> {
        let same = |row: &Row| row.queue == queue && row.timer_id.as_deref() == Some(timer_id);
        self.rows.values().find(|stored| same(&stored.row)).map(|stored| stored.row.id)
    }

    pub(super) fn insert(
        &mut self,
        message: Prepared,
        tx: Option<u64>,
    ) -> (Published, Option<Undo>) {
        let next_attempt_at = match message.due {
            Due::Now => self.now,
            Due::In(delay) => self.after(delay),
            // As exact as the databases are.
            Due::At(time) => from_micros(to_micros(time)),
        };
        let now = self.now;
        // Of two equal delays the second ends later, even though this clock stands still.
        let is_delay = !matches!(message.due, Due::At(_));
        let live = message.timer_id.as_deref().and_then(|timer| self.timer(&message.queue, timer));
        if let Some(id) = live {
            let extend = message.extend;
            return match self.rows.get_mut(&id) {
                Some(stored) if extend && stored.row.acquired_token.is_none() => {
                    let before = stored.row.clone();
                    stored.locked_by = tx;
                    let until = stored.row.next_attempt_at;
                    let moves = next_attempt_at > until || (is_delay && next_attempt_at == until);
                    if moves {
                        stored.row.next_attempt_at = next_attempt_at;
                        stored.row.payload = message.payload;
                        stored.row.headers = Some(message.headers.into());
                        // It is a new message now, which nobody has been given yet.
                        stored.row.created_at = now;
                        stored.row.attempts_count = 0;
                        stored.row.deliveries_count = 0;
                        stored.row.first_attempt_at = None;
                        stored.row.last_attempt_at = None;
                    }
                    let published =
                        if moves { Published::Extended(id) } else { Published::Kept(id) };
                    (published, Some(Undo { id, before: Some(before) }))
                }
                _ => (Published::Duplicate, None),
            };
        }
        self.last_id += 1;
        let id = self.last_id;
        let row = Row {
            next_attempt_at,
            timer_id: message.timer_id,
            headers: Some(message.headers.into()),
            ..Row::fresh(id, message.queue, message.payload, now)
        };
        self.rows.insert(id, Stored { row, locked_by: tx });
        (Published::Inserted(id), Some(Undo { id, before: None }))
    }
}
