//! What a simulation tells the tests of the engine. Hidden: it changes with both.
#![allow(missing_docs)]

use crate::store::memory::Statement;

/// Something that happened.
#[derive(Debug)]
pub enum Told<'a> {
    /// The tables have changed.
    Written(&'a Statement),
    /// A process has sent a statement.
    Sent {
        session: u32,
        action: &'static str,
    },
    Fault {
        session: u32,
        action: &'static str,
        fault: Fault,
    },
    /// A message was published, and so many processes were woken for it.
    Woke {
        queue: &'a str,
        processes: usize,
    },
    /// A process hears of nothing any more until it listens again; it was to be woken for this.
    Deafened {
        queue: &'a str,
    },
    Started {
        session: u32,
    },
    Crashed {
        session: u32,
        place: Place,
    },
    Draining {
        session: u32,
    },
    Drained {
        session: u32,
        clean: bool,
    },
    /// From here on there are no faults.
    Calm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// It waited long.
    Stalled,
    /// So did everything of the process.
    CutOff,
    /// The database refused it.
    Refused,
    /// It failed and was not done.
    Undone,
    /// It failed, and was done.
    Unanswered,
    /// It failed, and was done later.
    Late,
}

/// Where a process was when it crashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// About to send this.
    Before(&'static str),
    /// It was done, and not answered yet.
    After(&'static str),
    /// Anywhere.
    Between,
    Draining,
}
