//! What there is: messages, and the hands of workers.

use crate::Broken;

/// A number of ticks.
pub type Time = u8;

/// `K` messages and `S` slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State<const K: usize, const S: usize> {
    pub now: Time,
    pub messages: [Message; K],
    /// Each a place of a worker for one delivery.
    pub slots: [Option<Slot>; S],
    /// The promises broken on the way here.
    pub broken: Broken,
}

/// One message, from its producer's transaction on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Message {
    pub fate: Fate,
    pub row: Option<Row>,
    /// Dead letters that nobody dealt with yet.
    pub letters: u8,
    /// Dead letters that were replayed.
    pub replayed: u8,
    pub truth: Truth,
}

/// What became of the producer's transaction, and of a cancel later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fate {
    #[default]
    Unwritten,
    Committed,
    RolledBack,
    /// Committed, but a live row had the timer name; the producer was told so.
    Refused,
    Cancelled,
}

/// A row of the outbox table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Row {
    pub due: Time,
    pub deliveries: u8,
    pub attempts: u8,
    pub lease: Option<Lease>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// All that a statement can tell leases apart by.
    pub token: u8,
    pub at: Time,
    /// The token says that the row runs alone.
    pub alone: bool,
    /// The claim that it is really of.
    pub claim: u8,
}

/// What no statement sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Truth {
    pub claims: u8,
    /// The last claim under which the handler was started; 0 is none.
    pub started: u8,
    /// The claims under which it ended well, a bit each.
    pub handled: u64,
    /// The handler failed.
    pub failed: bool,
    /// It was started with no other handler beside it, and nothing was heard of it since.
    pub silent: bool,
    /// Tokens that leases of its rows had, a bit each.
    pub tokens: u64,
}

/// A delivery in the hands of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    pub key: u8,
    pub token: u8,
    pub claim: u8,
    pub phase: Phase,
    pub case: Case,
    /// When its worker believes that the lease ends.
    pub deadline: Time,
    /// When the lease really ends, as long as nobody else is given the row.
    pub ends: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The claim is made, its answer on the way.
    Sent,
    /// Waits to be started.
    Buffered,
    Running,
    /// The handler has ended; to be settled.
    Done(Verdict),
    /// Half of a settlement is written, which no right rule does.
    Half(Verdict),
}

/// Whether a row was delivered too often to be simply run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Case {
    Plain,
    /// Its leases ran out, maybe by the fault of other rows: it has to run alone.
    Suspect,
    /// It ran alone and its lease ran out, or it was settled each time.
    Guilty,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    Ok,
    Fail,
    Reject,
    Snooze,
    /// Never started: see [`Case::Guilty`].
    TooOften,
}

impl<const K: usize, const S: usize> State<K, S> {
    /// Nothing is written. It begins late enough for the oldest lease that counts.
    #[must_use]
    pub fn begin(now: Time) -> Self {
        Self { now, messages: [Message::default(); K], slots: [None; S], broken: Broken::default() }
    }

    /// The row that a slot has, or had.
    pub(crate) fn row_of(&self, slot: &Slot) -> Option<Row> {
        self.messages[usize::from(slot.key)].row
    }

    /// Times moved so that it is `ttl` o'clock. Of what is past only that it is past
    /// matters, so states that differ in no more become one: the checker needs no end
    /// of time.
    #[must_use]
    pub fn rebased(mut self, ttl: Time) -> Self {
        let now = self.now;
        let ahead = |time: Time| ttl + time.saturating_sub(now);
        for row in self.messages.iter_mut().filter_map(|message| message.row.as_mut()) {
            row.due = ahead(row.due);
            if let Some(lease) = &mut row.lease {
                lease.at = ttl - now.saturating_sub(lease.at).min(ttl);
            }
        }
        for slot in self.slots.iter_mut().flatten() {
            slot.deadline = ahead(slot.deadline);
            slot.ends = ahead(slot.ends);
        }
        self.now = ttl;
        self
    }
}

impl Row {
    #[must_use]
    pub fn new(due: Time) -> Self {
        Self { due, deliveries: 0, attempts: 0, lease: None }
    }
}

impl Lease {
    #[must_use]
    pub fn is_over(&self, now: Time, ttl: Time) -> bool {
        self.at + ttl <= now
    }
}
