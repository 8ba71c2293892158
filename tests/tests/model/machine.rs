//! The model as proptest's reference: which steps are possible, and what they do.

use std::fmt;

use outbox_model::{Action, Outcome, Phase, Rules, State, Verdict, judge};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::strategy::Union;
use proptest_state_machine::ReferenceStateMachine;

use crate::step::{KEYS, RULES, SLOTS, STRICT, Step};

#[derive(Clone)]
pub struct Reference {
    pub rules: Rules,
    pub state: State<KEYS, SLOTS>,
    steps: u16,
    /// Rows due in the same tick are claimed in the order in which their due times were
    /// written.
    written: [u16; KEYS],
    writes: u16,
}

/// An action of a step with what it led to.
#[derive(Debug, Clone, Copy)]
pub struct Effect {
    pub before: State<KEYS, SLOTS>,
    pub action: Action,
    pub outcome: Outcome,
    pub after: State<KEYS, SLOTS>,
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after {} steps", self.steps)
    }
}

impl Reference {
    pub fn begin(rules: Rules) -> Self {
        Self { rules, state: State::begin(rules.ttl), steps: 0, written: [0; KEYS], writes: 0 }
    }

    /// Takes a step; `None` if it is not possible here.
    ///
    /// # Panics
    /// When the model itself breaks a promise.
    pub fn take(&self, step: &Step) -> Option<(Self, Vec<Effect>)> {
        let mut next = Self { steps: self.steps + 1, ..self.clone() };
        let mut effects = Vec::new();
        for action in step.actions(&self.state) {
            effects.push(next.act(action)?);
        }
        match *step {
            Step::Claim { worker, rows, start } => {
                let slots = next.claim(worker, rows, &mut effects)?;
                for &slot in &slots {
                    effects.push(next.act(Action::Receive { slot })?);
                }
                for slot in slots.into_iter().filter(|_| start) {
                    effects.extend(next.act(Action::Start { slot }));
                }
            }
            Step::LoseClaim { worker } => {
                let slots = next.claim(worker, 1, &mut effects)?;
                if slots.is_empty() {
                    return None;
                }
            }
            _ => {}
        }
        Some((next, effects))
    }

    fn act(&mut self, action: Action) -> Option<Effect> {
        let before = self.state;
        if !self.rules.allow(&before, action) {
            return None;
        }
        let (after, outcome) = self.rules.step(before, action);
        let broken = judge(&self.rules, &before, action, &after);
        assert!(broken.is_empty(), "{action:?} breaks {:?}", broken.iter().collect::<Vec<_>>());
        let landed = matches!(outcome, Outcome::Landed(true) | Outcome::Told(true));
        if landed && let Some(key) = action.key(&before) {
            let due =
                |of: &State<KEYS, SLOTS>| of.messages[usize::from(key)].row.map(|row| row.due);
            if due(&before) != due(&after) {
                self.writes += 1;
                self.written[usize::from(key)] = self.writes;
            }
        }
        self.state = after;
        Some(Effect { before, action, outcome, after })
    }

    /// Takes up to so many due rows, the first ones, into free slots.
    fn claim(&mut self, worker: u8, rows: u8, effects: &mut Vec<Effect>) -> Option<Vec<u8>> {
        let (rules, state) = (self.rules, &self.state);
        let free = |slot: &u8| state.slots[usize::from(*slot)].is_none();
        let own = |slot: &u8| rules.worker_of(*slot) == worker;
        let slots: Vec<u8> = (0..4).filter(own).filter(free).take(rows.into()).collect();
        if slots.len() < usize::from(rows) {
            return None;
        }
        let slot = slots[0];
        let mut due: Vec<u8> =
            (0..12).filter(|&key| rules.allow(state, Action::Claim { slot, key })).collect();
        due.sort_by_key(|&key| {
            let key = usize::from(key);
            (state.messages[key].row.map(|row| row.due), self.written[key])
        });
        let mut taken = Vec::new();
        for (slot, key) in slots.into_iter().zip(due) {
            effects.push(self.act(Action::Claim { slot, key })?);
            taken.push(slot);
        }
        Some(taken)
    }

    /// The steps of each kind that are possible, with how often they are to come.
    fn possible(&self) -> Vec<(u32, BoxedStrategy<Step>)> {
        let state = &self.state;
        let slots = |wanted: fn(Phase) -> bool| -> Vec<u8> {
            let at = |slot: &u8| state.slots[usize::from(*slot)];
            (0..4).filter(|slot| at(slot).is_some_and(|it| wanted(it.phase))).collect()
        };
        let ended = || slots(|it| matches!(it, Phase::Running | Phase::Done(_)));
        let keys = |step: fn(u8) -> Step| (0..12).map(step).collect();
        let of_each = |slots: Vec<u8>, step: fn(u8) -> Step| slots.into_iter().map(step).collect();
        let claims = (0..2).flat_map(|worker| {
            let some = [(2, true), (1, true), (2, false), (1, false)];
            some.map(|(rows, start)| Step::Claim { worker, rows, start })
        });
        let singles: Vec<(u32, Vec<Step>)> = vec![
            (18, vec![Step::Tick]),
            (13, keys(|key| Step::Publish { key })),
            (2, keys(|key| Step::RollBack { key })),
            (5, keys(|key| Step::Cancel { key })),
            (10, keys(|key| Step::Replay { key })),
            (24, claims.collect()),
            (4, (0..2).map(|worker| Step::LoseClaim { worker }).collect()),
            (6, of_each(slots(|it| it == Phase::Sent), |slot| Step::Abandon { slot })),
            (6, of_each(slots(|it| it == Phase::Buffered), |slot| Step::Start { slot })),
            (3, of_each(ended(), |slot| Step::Refuse { slot })),
            (3, of_each(ended(), |slot| Step::Keep { slot })),
            (60, (0..4).map(|slot| Step::Mark { slot }).collect()),
            (60, (0..4).map(|slot| Step::Join { slot }).collect()),
            (3, (0..2).map(|worker| Step::Crash { worker }).collect()),
        ];
        let mut all = Vec::new();
        for (weight, mut steps) in singles {
            steps.retain(|step| self.take(step).is_some());
            if !steps.is_empty() {
                all.push((weight, select(steps).boxed()));
            }
        }
        let mut some = |weight, slots: Vec<u8>, step: fn(Vec<u8>) -> BoxedStrategy<Step>| {
            if !slots.is_empty() {
                let most = slots.len();
                all.push((weight, subsequence(slots, 1..=most).prop_flat_map(step).boxed()));
            }
        };
        some(14, ended(), settle);
        let running = || slots(|it| it == Phase::Running);
        some(8, running(), |slots| Just(Step::Extend { slots }).boxed());
        some(2, running(), |slots| Just(Step::CutOff { slots }).boxed());
        some(8, slots(|it| it == Phase::Buffered), |slots| Just(Step::Release { slots }).boxed());
        all
    }
}

fn settle(slots: Vec<u8>) -> BoxedStrategy<Step> {
    let verdict = prop_oneof![
        2 => Just(Verdict::Ok),
        4 => Just(Verdict::Fail),
        3 => Just(Verdict::Reject),
        1 => Just(Verdict::Snooze),
    ];
    let answered = prop::bool::weighted(0.75);
    (verdict, answered)
        .prop_map(move |(verdict, answered)| Step::Settle {
            slots: slots.clone(),
            verdict,
            answered,
        })
        .boxed()
}

impl ReferenceStateMachine for Reference {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        select(vec![RULES, STRICT]).prop_map(Self::begin).boxed()
    }

    fn transitions(state: &Self) -> BoxedStrategy<Step> {
        Union::new_weighted(state.possible()).boxed()
    }

    fn apply(state: Self, step: &Step) -> Self {
        state.take(step).map_or(state, |(next, _)| next)
    }

    fn preconditions(state: &Self, step: &Step) -> bool {
        state.take(step).is_some()
    }
}
