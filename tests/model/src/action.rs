//! What can happen.

use crate::{Number, State, Verdict};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    Tick,
    /// The producer's transaction commits, its message in it.
    Publish {
        key: u8,
    },
    /// It rolls back.
    RollBack {
        key: u8,
    },
    /// Of a timer.
    Cancel {
        key: u8,
    },
    Replay {
        key: u8,
    },
    Claim {
        slot: u8,
        key: u8,
    },
    /// The answer to a claim comes.
    Receive {
        slot: u8,
    },
    /// It never comes: what the claim took is given back.
    Abandon {
        slot: u8,
    },
    Start {
        slot: u8,
    },
    /// The handler ends.
    Finish {
        slot: u8,
        verdict: Verdict,
    },
    /// Without an answer it is repeated.
    Settle {
        slot: u8,
        answered: bool,
    },
    /// The dead-letter table does not take the letter.
    Refuse {
        slot: u8,
    },
    /// For that reason its row is given back, to be due after a lease.
    Keep {
        slot: u8,
    },
    Extend {
        slot: u8,
    },
    /// The lease of a suspect goes on under a token that says that it runs alone.
    Mark {
        slot: u8,
    },
    /// It has run alone for long enough: its lease goes on under a token that does not
    /// say so, and others start beside it.
    Join {
        slot: u8,
    },
    /// The time of a drain is over: its handler is dropped, and the row given back.
    CutOff {
        slot: u8,
    },
    /// Gives back what was not started.
    Release {
        slot: u8,
    },
    Crash {
        worker: u8,
    },
}

/// What the one who acted is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Silent,
    /// Whether the message was inserted, the timer cancelled, the letter replayed.
    Told(bool),
    Claimed(Before),
    /// Whether the write hit its row.
    Landed(bool),
}

/// How the previous delivery of a row ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    Settled,
    Expired,
    ExpiredAlone,
}

impl Action {
    #[must_use]
    pub fn slot(self) -> Option<u8> {
        match self {
            Self::Claim { slot, .. }
            | Self::Receive { slot }
            | Self::Abandon { slot }
            | Self::Start { slot }
            | Self::Finish { slot, .. }
            | Self::Settle { slot, .. }
            | Self::Refuse { slot }
            | Self::Keep { slot }
            | Self::Extend { slot }
            | Self::Mark { slot }
            | Self::Join { slot }
            | Self::CutOff { slot }
            | Self::Release { slot } => Some(slot),
            _ => None,
        }
    }

    /// The message it is about.
    #[must_use]
    pub fn key<const K: usize, const S: usize, N: Number>(
        self,
        state: &State<K, S, N>,
    ) -> Option<u8> {
        match self {
            Self::Publish { key }
            | Self::RollBack { key }
            | Self::Cancel { key }
            | Self::Replay { key }
            | Self::Claim { key, .. } => Some(key),
            _ => state.slots[usize::from(self.slot()?)].map(|slot| slot.key),
        }
    }
}
