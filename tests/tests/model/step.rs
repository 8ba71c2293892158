//! What a sequence is made of, in the model's actions.

use outbox_model::{Action, Phase, Rules, State, Verdict};

pub const KEYS: usize = 12;
pub const SLOTS: usize = 4;

/// A third of the messages share a timer name, a quarter is published with a delay.
pub const RULES: Rules = Rules {
    ttl: 2,
    delay: 1,
    max_attempts: 3,
    max_deliveries: Some(3),
    timers: 0b1111_0000_0000,
    delayed: 0b1000_1000_1000,
    hands: 2,
    mutant: None,
};

/// A row is a suspect as soon as a lease of its ran out.
pub const STRICT: Rules = Rules { max_deliveries: Some(1), ..RULES };

/// Calls to a store, or none where only the worker changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Tick,
    Publish {
        key: u8,
    },
    RollBack {
        key: u8,
    },
    Cancel {
        key: u8,
    },
    Replay {
        key: u8,
    },
    /// One claim for so many rows, which are started if they may be.
    Claim {
        worker: u8,
        rows: u8,
        start: bool,
    },
    /// One whose answer is never received.
    LoseClaim {
        worker: u8,
    },
    Abandon {
        slot: u8,
    },
    Start {
        slot: u8,
    },
    /// Handlers end like this, and are settled in one batch.
    Settle {
        slots: Vec<u8>,
        verdict: Verdict,
        answered: bool,
    },
    /// The handler fails for good, and the dead-letter table does not take the letter.
    Refuse {
        slot: u8,
    },
    /// And its row is given back.
    Keep {
        slot: u8,
    },
    Extend {
        slots: Vec<u8>,
    },
    /// A suspect is to run alone, or has for long enough.
    Mark {
        slot: u8,
    },
    Join {
        slot: u8,
    },
    Release {
        slots: Vec<u8>,
    },
    CutOff {
        slots: Vec<u8>,
    },
    Crash {
        worker: u8,
    },
}

impl Step {
    /// The kinds, for counting.
    pub const KINDS: [&str; 18] = [
        "tick",
        "publish",
        "roll back",
        "cancel",
        "replay",
        "claim",
        "lose claim",
        "abandon",
        "start",
        "settle",
        "refuse",
        "extend",
        "mark",
        "join",
        "release",
        "cut off",
        "crash",
        "keep",
    ];

    pub fn kind(&self) -> &'static str {
        Self::KINDS[match self {
            Self::Tick => 0,
            Self::Publish { .. } => 1,
            Self::RollBack { .. } => 2,
            Self::Cancel { .. } => 3,
            Self::Replay { .. } => 4,
            Self::Claim { .. } => 5,
            Self::LoseClaim { .. } => 6,
            Self::Abandon { .. } => 7,
            Self::Start { .. } => 8,
            Self::Settle { .. } => 9,
            Self::Refuse { .. } => 10,
            Self::Extend { .. } => 11,
            Self::Mark { .. } => 12,
            Self::Join { .. } => 13,
            Self::Release { .. } => 14,
            Self::CutOff { .. } => 15,
            Self::Crash { .. } => 16,
            Self::Keep { .. } => 17,
        }]
    }

    /// Deliveries whose final word it writes. What extends, releases or abandons a lease
    /// that ran out finds that sooner, and is no proof of what a settlement does then.
    pub fn settled(&self) -> &[u8] {
        match self {
            Self::Settle { slots, .. } => slots,
            Self::Refuse { slot } | Self::Keep { slot } => std::slice::from_ref(slot),
            _ => &[],
        }
    }

    /// The actions in which it begins; claims choose their rows in `machine`.
    pub fn actions(&self, state: &State<KEYS, SLOTS>) -> Vec<Action> {
        let running = |slot: &u8| {
            state.slots[usize::from(*slot)].is_some_and(|it| it.phase == Phase::Running)
        };
        match *self {
            Self::Tick => vec![Action::Tick],
            Self::Publish { key } => vec![Action::Publish { key }],
            Self::RollBack { key } => vec![Action::RollBack { key }],
            Self::Cancel { key } => vec![Action::Cancel { key }],
            Self::Replay { key } => vec![Action::Replay { key }],
            Self::Claim { .. } | Self::LoseClaim { .. } => Vec::new(),
            Self::Abandon { slot } => vec![Action::Abandon { slot }],
            Self::Start { slot } => vec![Action::Start { slot }],
            Self::Settle { ref slots, verdict, answered } => {
                let end = slots.iter().filter(|slot| running(slot));
                let end = end.map(|&slot| Action::Finish { slot, verdict });
                end.chain(slots.iter().map(|&slot| Action::Settle { slot, answered })).collect()
            }
            Self::Refuse { slot } | Self::Keep { slot } => {
                let verdict = Verdict::Reject;
                let end = running(&slot).then_some(Action::Finish { slot, verdict });
                let kept = matches!(self, Self::Keep { .. });
                let then = if kept { Action::Keep { slot } } else { Action::Refuse { slot } };
                end.into_iter().chain([then]).collect()
            }
            Self::Extend { ref slots } => {
                slots.iter().map(|&slot| Action::Extend { slot }).collect()
            }
            Self::Mark { slot } => vec![Action::Mark { slot }],
            Self::Join { slot } => vec![Action::Join { slot }],
            Self::Release { ref slots } => {
                slots.iter().map(|&slot| Action::Release { slot }).collect()
            }
            Self::CutOff { ref slots } => {
                slots.iter().map(|&slot| Action::CutOff { slot }).collect()
            }
            Self::Crash { worker } => vec![Action::Crash { worker }],
        }
    }
}
