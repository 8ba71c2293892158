//! What a statement has changed, as a trigger on both tables would report it. It is read from the
//! tables and not reported by the code that writes them, because that code may be wrong.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, MutexGuard};
use std::time::SystemTime;

use super::{Stored, Tables};
use crate::message::{DeadLetter, Row};

/// One statement, or the commit of a transaction.
#[derive(Debug)]
pub struct Statement {
    pub at: SystemTime,
    /// The session that sent it; see [`MemoryStore::session`](super::MemoryStore::session).
    pub session: u32,
    pub rows: Vec<Change>,
    /// Dead letters that were added.
    pub letters: Vec<DeadLetter>,
}

/// A row before and after: `None` where it was not there.
#[derive(Debug)]
pub struct Change {
    pub before: Option<Row>,
    pub after: Option<Row>,
}

/// Called with every statement that changed something, while the tables are locked.
pub(super) type Hook = Arc<dyn Fn(&Statement) + Send + Sync>;

pub(super) struct Audit {
    /// The rows as they were after the last statement, without what was not committed.
    rows: BTreeMap<i64, Row>,
    letters: usize,
    hook: Hook,
}

impl Audit {
    pub(super) fn new(hook: Hook) -> Self {
        Self { rows: BTreeMap::new(), letters: 0, hook }
    }

    fn look(
        &mut self,
        rows: &BTreeMap<i64, Stored>,
        letters: &[DeadLetter],
        at: SystemTime,
        session: u32,
    ) {
        let mut changes = Vec::new();
        self.rows.retain(|id, before| {
            let there = rows.contains_key(id);
            if !there {
                changes.push(Change { before: Some(before.clone()), after: None });
            }
            there
        });
        for (id, Stored { row, .. }) in rows.iter().filter(|(_, it)| it.locked_by.is_none()) {
            if self.rows.get(id) != Some(row) {
                let before = self.rows.insert(*id, row.clone());
                changes.push(Change { before, after: Some(row.clone()) });
            }
        }
        let letters = letters[self.letters.min(letters.len())..].to_vec();
        self.letters += letters.len();
        if !changes.is_empty() || !letters.is_empty() {
            (self.hook)(&Statement { at, session, rows: changes, letters });
        }
    }
}

/// The tables, locked for one statement.
pub(super) struct Locked<'a> {
    pub(super) tables: MutexGuard<'a, Tables>,
    pub(super) session: u32,
    pub(super) written: bool,
}

impl Deref for Locked<'_> {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        &self.tables
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Tables {
        self.written = true;
        &mut self.tables
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let Tables { audit, rows, dlq, now, .. } = &mut *self.tables;
        if let Some(audit) = audit.as_mut().filter(|_| self.written) {
            audit.look(rows, dlq.as_deref().unwrap_or_default(), *now, self.session);
        }
    }
}
