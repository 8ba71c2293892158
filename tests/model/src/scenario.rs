//! How far the checker goes, and the drain at the end of every way.

use crate::{Action, Property, Rules, State, Verdict, judge};

/// Rules, and bounds that keep the states finite. Time has none: see
/// [`State::rebased`].
#[derive(Debug, Clone, Copy)]
pub struct Scenario<const K: usize, const S: usize> {
    pub rules: Rules,
    /// Of each message.
    pub claims: u8,
    pub replays: u8,
    pub verdicts: &'static [Verdict],
    /// Whether answers may be lost, leases extended, and rows given back.
    pub unanswered: bool,
    pub extends: bool,
    pub releases: bool,
}

impl<const K: usize, const S: usize> Scenario<K, S> {
    #[must_use]
    pub fn begin(&self) -> State<K, S> {
        State::begin(self.rules.ttl)
    }

    /// All that can happen next. Nothing, once a promise is broken.
    pub fn actions(&self, state: &State<K, S>, actions: &mut Vec<Action>) {
        if !state.broken.is_empty() {
            return;
        }
        let mut add = |action| {
            if self.rules.allow(state, action) {
                actions.push(action);
            }
        };
        add(Action::Tick);
        for key in numbers(K) {
            let message = &state.messages[usize::from(key)];
            add(Action::Publish { key });
            add(Action::RollBack { key });
            add(Action::Cancel { key });
            if message.replayed < self.replays {
                add(Action::Replay { key });
            }
            for slot in numbers(S).filter(|_| message.truth.claims < self.claims) {
                add(Action::Claim { slot, key });
            }
        }
        for slot in numbers(S) {
            add(Action::Receive { slot });
            add(Action::Start { slot });
            for verdict in self.verdicts {
                add(Action::Finish { slot, verdict: *verdict });
            }
            add(Action::Settle { slot, answered: true });
            add(Action::Refuse { slot });
            add(Action::Keep { slot });
            add(Action::Mark { slot });
            add(Action::Join { slot });
            if self.unanswered {
                add(Action::Abandon { slot });
                add(Action::Settle { slot, answered: false });
            }
            if self.extends {
                add(Action::Extend { slot });
            }
            if self.releases {
                add(Action::Release { slot });
                add(Action::CutOff { slot });
            }
        }
        for worker in numbers(S.div_ceil(usize::from(self.rules.hands))) {
            add(Action::Crash { worker });
        }
    }

    #[must_use]
    pub fn next(&self, state: &State<K, S>, action: Action) -> State<K, S> {
        let (mut next, _) = self.rules.step(*state, action);
        next.broken |= judge(&self.rules, state, action, &next);
        next.rebased(self.rules.ttl)
    }

    /// Z1: from here, if workers live on and handlers end well, the queue becomes empty
    /// within a lease and the longest delay.
    #[must_use]
    pub fn drains(&self, state: &State<K, S>) -> bool {
        if state.slots.iter().any(Option::is_some) {
            // They crash, and that is another state.
            return true;
        }
        let (rules, mut state, slot) = (&self.rules, *state, 0);
        for _ in 0..=rules.ttl.max(rules.delay) {
            for key in numbers(K) {
                let way = [
                    Action::Claim { slot, key },
                    Action::Receive { slot },
                    Action::Start { slot },
                    Action::Finish { slot, verdict: Verdict::Ok },
                    Action::Settle { slot, answered: true },
                ];
                for action in way {
                    if rules.allow(&state, action) {
                        state = rules.step(state, action).0;
                    }
                }
            }
            state.now += 1;
        }
        state.messages.iter().all(|message| message.row.is_none())
    }

    /// Whether a state keeps a promise.
    #[must_use]
    pub fn keeps(&self, state: &State<K, S>, property: Property) -> bool {
        match property {
            Property::Z1 => self.drains(state),
            told => !state.broken.has(told),
        }
    }
}

fn numbers(count: usize) -> impl Iterator<Item = u8> {
    (0..u8::MAX).take(count)
}
