//! What there is: messages, and the hands of workers.

use crate::{Broken, Number, Tick};

/// `K` messages and `S` slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State<const K: usize, const S: usize, N = Tick> {
    pub now: N,
    pub messages: [Message<N>; K],
    /// Each a place of a worker for one delivery.
    pub slots: [Option<Slot<N>>; S],
    /// The promises broken on the way here.
    pub broken: Broken,
}

/// One message, from its producer's transaction on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Message<N = Tick> {
    pub fate: Fate,
    pub row: Option<Row<N>>,
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
pub struct Row<N = Tick> {
    pub due: N,
    pub deliveries: N,
    pub attempts: N,
    pub lease: Option<Lease<N>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease<N = Tick> {
    /// All that a statement can tell leases apart by.
    pub token: u8,
    pub at: N,
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
    /// It was to run with no other handler beside it, and nothing was heard of it since.
    pub silent: bool,
    /// The claim that has to condemn it, as the one before did; 0 is none.
    pub condemned: u8,
    /// Tokens that leases of its rows had, a bit each.
    pub tokens: u64,
}

/// A delivery in the hands of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot<N = Tick> {
    pub key: u8,
    pub token: u8,
    pub claim: u8,
    pub phase: Phase,
    pub case: Case,
    /// When its worker believes that the lease ends.
    pub deadline: N,
    /// When the lease really ends, as long as nobody else is given the row.
    pub ends: N,
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
    /// Its token says that it does.
    Alone,
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

impl<const K: usize, const S: usize, N: Number> State<K, S, N> {
    /// Nothing is written. It begins late enough for the oldest lease that counts.
    #[must_use]
    pub fn begin(now: N) -> Self {
        Self { now, messages: [Message::default(); K], slots: [None; S], broken: Broken::default() }
    }

    /// The row that a slot has, or had.
    pub(crate) fn row_of(&self, slot: &Slot<N>) -> Option<Row<N>> {
        self.messages[usize::from(slot.key)].row
    }

    /// Times moved so that it is `ttl` o'clock. Of what is past only that it is past
    /// matters, so states that differ in no more become one: the checker needs no end
    /// of time.
    #[must_use]
    pub fn rebased(mut self, ttl: N) -> Self {
        let now = self.now;
        let ahead = |time: N| ttl + time.less(now);
        for row in self.messages.iter_mut().filter_map(|message| message.row.as_mut()) {
            row.due = ahead(row.due);
            if let Some(lease) = &mut row.lease {
                lease.at = ttl - now.less(lease.at).min(ttl);
            }
        }
        for slot in self.slots.iter_mut().flatten() {
            slot.deadline = ahead(slot.deadline);
            slot.ends = ahead(slot.ends);
        }
        self.now = ttl;
        self
    }

    /// Claims and tokens numbered anew, without those that nobody has any more: they are
    /// small numbers, and the record of a run knows rows that are claimed for ever.
    #[must_use]
    pub fn renumbered(mut self) -> Self {
        for (key, message) in (0..).zip(&mut self.messages) {
            let (mut claims, mut tokens) = (Vec::new(), Vec::new());
            let mut rename = |claim: &mut u8, token: &mut u8| {
                *claim = place(&mut claims, *claim) + 1;
                *token = place(&mut tokens, *token);
            };
            if let Some(lease) = message.row.as_mut().and_then(|row| row.lease.as_mut()) {
                rename(&mut lease.claim, &mut lease.token);
            }
            for slot in self.slots.iter_mut().flatten().filter(|slot| slot.key == key) {
                rename(&mut slot.claim, &mut slot.token);
            }
            let old = message.truth;
            let mut truth = Truth { silent: old.silent, failed: old.failed, ..Truth::default() };
            let mut known = 0;
            for (claim, was) in (1..).zip(claims) {
                truth.claims = claim;
                truth.handled |= (old.handled >> was & 1) << claim;
                truth.started = if old.started == was { claim } else { truth.started };
                truth.condemned = if old.condemned == was { claim } else { truth.condemned };
                known |= 1 << was;
            }
            if old.condemned > old.claims {
                truth.condemned = truth.claims + 1;
            }
            // Of the others only that one of them ended well.
            truth.handled |= u64::from(old.handled & !known != 0);
            truth.tokens = (1 << tokens.len()) - 1;
            message.truth = truth;
        }
        self
    }
}

/// Where it stands among those that are known, the last one from now on if it is not.
fn place(known: &mut Vec<u8>, one: u8) -> u8 {
    let at = known.iter().position(|other| *other == one).unwrap_or_else(|| {
        known.push(one);
        known.len() - 1
    });
    u8::try_from(at).unwrap_or(u8::MAX)
}

impl<N: Number> Row<N> {
    #[must_use]
    pub fn new(due: N) -> Self {
        Self { due, deliveries: N::default(), attempts: N::default(), lease: None }
    }
}

impl<N: Number> Lease<N> {
    #[must_use]
    pub fn is_over(&self, now: N, ttl: N) -> bool {
        self.at + ttl <= now
    }
}
