//! Everything that happens in a simulation, in its order: what the tables say of
//! themselves, what the processes do, and what the handlers' own bodies write.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use outbox::testing::store::{Change, Fault, Place, Statement, Told, token_of};
use outbox::{Context, DeadLetter, Published};
use tokio::time::Instant;
use uuid::Uuid;

/// When the broker's clock starts.
const EPOCH: SystemTime = SystemTime::UNIX_EPOCH;
const START: Duration = Duration::from_secs(1_767_225_600);

/// A time of the tables, since the start.
pub fn since_start(time: SystemTime) -> Duration {
    time.duration_since(EPOCH + START).unwrap_or_default()
}

pub struct Entry {
    /// Since the start.
    pub at: Duration,
    pub what: What,
}

pub enum What {
    Written {
        session: u32,
        rows: Vec<Change>,
        letters: Vec<DeadLetter>,
    },
    Sent {
        session: u32,
        action: &'static str,
    },
    Fault {
        session: u32,
        action: &'static str,
        fault: Fault,
    },
    Woke {
        queue: String,
        processes: usize,
    },
    Deafened {
        queue: String,
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
    Calm,
    /// A handler's body.
    Runs {
        id: i64,
        token: Uuid,
    },
    Ends {
        id: i64,
        token: Uuid,
        how: How,
    },
    /// The test published; it began at that time.
    Published {
        begun: Duration,
        delay: Duration,
        timer: bool,
        published: Published,
    },
    /// The test cancelled the timer of a row.
    Cancelled {
        id: i64,
        done: bool,
    },
    /// Nothing was left to do.
    Idle,
}

/// What a handler's body came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Done,
    Failed,
    Panicked,
    Rejected,
    Snoozed,
    /// It was dropped before it came to an end.
    Dropped,
}

#[derive(Clone, Default)]
pub struct Journal(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    begun: Option<Instant>,
    entries: Vec<Entry>,
}

impl Journal {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Has to come before any time passes.
    pub fn begin(&self) {
        self.state().begun = Some(Instant::now());
    }

    pub fn now(&self) -> Duration {
        self.state().begun.unwrap().elapsed()
    }

    pub fn write(&self, what: What) {
        let mut state = self.state();
        let at = state.begun.unwrap().elapsed();
        state.entries.push(Entry { at, what });
    }

    pub fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut self.state().entries)
    }

    pub fn hear(&self, told: &Told<'_>) {
        self.write(match *told {
            Told::Written(statement) => written(statement),
            Told::Sent { session, action } => What::Sent { session, action },
            Told::Fault { session, action, fault } => What::Fault { session, action, fault },
            Told::Woke { queue, processes } => What::Woke { queue: queue.into(), processes },
            Told::Deafened { queue } => What::Deafened { queue: queue.into() },
            Told::Started { session } => What::Started { session },
            Told::Crashed { session, place } => What::Crashed { session, place },
            Told::Draining { session } => What::Draining { session },
            Told::Drained { session, clean } => What::Drained { session, clean },
            Told::Calm => What::Calm,
        });
    }

    /// The first line of a handler's body.
    pub fn runs(&self, context: &Context) -> Running {
        let (id, token) = (context.id(), token_of(context));
        self.write(What::Runs { id, token });
        Running { journal: self.clone(), id, token, ended: false }
    }
}

fn written(statement: &Statement) -> What {
    let copy = |it: &Change| Change { before: it.before.clone(), after: it.after.clone() };
    What::Written {
        session: statement.session,
        rows: statement.rows.iter().map(copy).collect(),
        letters: statement.letters.clone(),
    }
}

/// A handler's body from its first line to its last.
pub struct Running {
    journal: Journal,
    id: i64,
    token: Uuid,
    ended: bool,
}

impl Running {
    /// The last line.
    pub fn ends(mut self, how: How) {
        self.ended = true;
        self.journal.write(What::Ends { id: self.id, token: self.token, how });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            let (id, token) = (self.id, self.token);
            self.journal.write(What::Ends { id, token, how: How::Dropped });
        }
    }
}
