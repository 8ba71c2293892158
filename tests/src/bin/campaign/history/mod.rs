//! What happened: the audit of the server, the domain rows, the files of the handlers,
//! and what the campaign itself did.

mod load;

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::args::Store;
use crate::faults::CRASHES;
use crate::fleet::{Exit, Sent};
use crate::journal::Line;
use crate::lease::Lease;
use crate::size::Sizes;
use crate::world::Done;

/// A row of the audit.
#[derive(Clone, Debug)]
pub struct Change {
    pub seq: i64,
    /// Microseconds by the server's clock.
    pub at: i64,
    /// When its statement began.
    pub stmt: i64,
    pub xid: i64,
    pub app: Rc<str>,
    pub op: Op,
    pub id: i64,
    pub queue: Rc<str>,
    pub key: Option<Rc<str>>,
    pub timer: Option<String>,
    pub body: Option<String>,
    pub reason: Option<String>,
    pub old: Side,
    pub new: Side,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Insert,
    Update,
    Delete,
    Letter,
}

/// The row before or after.
#[derive(Clone, Default, Debug)]
pub struct Side {
    pub token: Option<String>,
    pub leased: i64,
    pub due: i64,
    pub deliveries: i64,
    pub attempts: i64,
}

impl Change {
    /// Not before this time, by clocks that one cuts to milliseconds.
    pub fn is_behind(&self, at: i64) -> bool {
        at / 1000 <= self.at / 1000
    }

    /// A worker's, on PostgreSQL, where sessions have names.
    pub fn by_worker(&self) -> bool {
        self.app.starts_with('w')
    }
}

/// A run of a handler, by its own words.
#[derive(Clone, Debug)]
pub struct Run {
    pub app: Rc<str>,
    pub id: i64,
    pub fence: i64,
    pub key: Rc<str>,
    pub batch: bool,
    /// On a thread of its own.
    pub plain: bool,
    pub begun: i64,
    /// And its word.
    pub ended: Option<(i64, String)>,
    /// How often it began.
    pub starts: usize,
}

pub struct Biz {
    pub queue: String,
    pub act: String,
    pub delay: i64,
    pub called: i64,
}

pub struct History {
    pub store: Store,
    pub changes: Vec<Change>,
    pub leases: Vec<Lease>,
    /// By id and fence.
    pub runs: BTreeMap<(i64, i64), Run>,
    pub biz: HashMap<String, Biz>,
    pub effects: Vec<(String, i64)>,
    pub cancelled: Vec<String>,
    /// Ids and keys that are in the table at the end.
    pub left: Vec<(i64, String)>,
    /// Ids and bodies of the rows whose letters are in theirs.
    pub letters: Vec<(i64, Option<String>)>,
    pub events: Vec<Line>,
    pub exits: Vec<Exit>,
    pub signals: Vec<Sent>,
    pub done: Vec<Done>,
    pub sizes: Sizes,
    pub broken: Vec<String>,
    /// When faults ended, and when everything was handled.
    pub quiet: (i64, i64),
}

impl History {
    /// The server lost its memory so shortly behind this time that claims may be undone.
    pub fn may_be_undone(&self, at: i64) -> bool {
        let crashes = self.done.iter().filter(|done| CRASHES.contains(&done.kind));
        // From three times `wal_writer_delay` before it, to its end: when it began is
        // known, when the server was gone is not.
        crashes.into_iter().any(|done| (done.from - 1_000_000..done.to + 100_000).contains(&at))
    }

    /// A process that is stopped in a transaction of SQLite's writes long after what it read.
    fn allow_for_stops(&mut self) {
        let stops = self.done.iter().filter(|done| done.kind == "worker stopped");
        for done in stops {
            // What it had begun was done when it went on.
            let stopped = done.from..done.to + 100_000;
            for change in self.changes.iter_mut().filter(|it| stopped.contains(&it.at)) {
                change.stmt = change.stmt.min(done.from - (change.at - change.stmt));
            }
        }
    }

    /// How the process ended, if it did.
    pub fn exit(&self, app: &str) -> Option<&Exit> {
        self.exits.iter().find(|exit| exit.app == app)
    }

    pub fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a Line> {
        self.events.iter().filter(move |line| line.word(0) == word)
    }
}
