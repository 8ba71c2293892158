//! The scenarios, as stateright wants them.

use outbox_model::{Action, Property, Rules, Scenario, State, Verdict};
use stateright::Model;

pub struct Checked<const K: usize, const S: usize>(pub Scenario<K, S>);

macro_rules! properties {
    ($($name:ident),+) => {
        vec![$(stateright::Property::always(stringify!($name), |checked: &Self, state| {
            checked.0.keeps(state, Property::$name)
        })),+]
    };
}

impl<const K: usize, const S: usize> Model for Checked<K, S> {
    type State = State<K, S>;
    type Action = Action;

    fn init_states(&self) -> Vec<Self::State> {
        vec![self.0.begin()]
    }

    fn actions(&self, state: &Self::State, actions: &mut Vec<Action>) {
        self.0.actions(state, actions);
    }

    fn next_state(&self, state: &Self::State, action: Action) -> Option<Self::State> {
        Some(self.0.next(state, action))
    }

    fn properties(&self) -> Vec<stateright::Property<Self>> {
        properties!(
            P1, M1, D1, D2, L1, L2, L3, L4, H1, H2, H3, H4, H5, C1, C2, T1, T2, T3, T4, R1, Z1
        )
    }
}

const ALL: [Verdict; 4] = [Verdict::Ok, Verdict::Fail, Verdict::Reject, Verdict::Snooze];

/// Two messages, and two workers with three slots between them.
pub const WORKERS: Scenario<2, 3> = Scenario {
    rules: Rules {
        ttl: 3,
        delay: 1,
        max_attempts: 2,
        max_deliveries: None,
        timers: 0,
        delayed: 0,
        hands: 2,
        mutant: None,
    },
    claims: 2,
    replays: 1,
    verdicts: &ALL,
    unanswered: true,
    extends: true,
    releases: true,
};

/// Two timers of one name, the second delayed, and a worker with two slots.
pub const TIMERS: Scenario<2, 2> = Scenario {
    rules: Rules { ttl: 2, timers: 0b11, delayed: 0b10, ..WORKERS.rules },
    claims: 3,
    replays: 1,
    verdicts: &ALL,
    unanswered: true,
    extends: true,
    releases: true,
};

/// Two messages that may be delivered once before they run alone.
pub const POISON: Scenario<2, 2> = Scenario {
    rules: Rules { ttl: 2, max_deliveries: Some(1), ..WORKERS.rules },
    claims: 3,
    replays: 0,
    verdicts: &[Verdict::Ok, Verdict::Fail],
    extends: false,
    ..TIMERS
};

/// A message that runs alone from its first delivery on, and two workers.
pub const CONDEMNED: Scenario<1, 2> = Scenario {
    rules: Rules { ttl: 1, max_deliveries: Some(0), hands: 1, ..WORKERS.rules },
    claims: 4,
    replays: 0,
    verdicts: &[Verdict::Ok],
    unanswered: true,
    extends: true,
    releases: true,
};
