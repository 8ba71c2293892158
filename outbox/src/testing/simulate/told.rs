//! What a simulation tells the tests of the engine. Hidden, because it changes with both.
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
    /// A message was published, and this many processes were woken for it.
    Woke {
        queue: &'a str,
        processes: usize,
    },
    /// A process was to be woken for this queue, but it hears nothing until it listens again.
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
    /// There are no faults from here on.
    Calm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The statement hung.
    Stalled,
    /// All statements of the process hung.
    CutOff,
    /// The database refused the statement.
    Refused,
    /// The statement failed, and was not done.
    Undone,
    /// The database was busy, so the statement was surely not done.
    Busy,
    /// The statement failed, and was done.
    Unanswered,
    /// The statement failed, and was done later.
    Late,
}

/// Where a process was when it crashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Place {
    /// It was about to send this statement.
    Before(&'static str),
    /// This statement was done, and not answered yet.
    After(&'static str),
    /// Anywhere.
    Between,
    Draining,
}
