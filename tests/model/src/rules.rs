//! What the system does.

use crate::{Action, Before, Case, Fate, Lease, Message, Mutant, Outcome, Phase, Row, Slot, State};
use crate::{Number, Tick, Truth, Verdict};

#[derive(Debug, Clone, Copy)]
pub struct Rules<N = Tick> {
    pub ttl: N,
    /// Of retries and snoozes, and of delayed messages.
    pub delay: N,
    pub max_attempts: N,
    pub max_deliveries: Option<N>,
    /// The messages that share one timer name, a bit each.
    pub timers: u64,
    /// The messages that are published with a delay.
    pub delayed: u64,
    /// Slots that a worker has.
    pub hands: u8,
    pub mutant: Option<Mutant>,
}

/// What a verdict does to the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settlement {
    Ack,
    Retry,
    Bury,
    Snooze,
}

impl<N: Number> Rules<N> {
    pub(crate) fn has(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    #[must_use]
    pub fn is_timer(&self, key: u8) -> bool {
        self.timers >> key & 1 == 1
    }

    /// How long after its publish a message is due.
    #[must_use]
    pub fn delay_of(&self, key: u8) -> N {
        if self.delayed >> key & 1 == 1 { self.delay } else { N::default() }
    }

    #[must_use]
    pub fn worker_of(&self, slot: u8) -> u8 {
        slot / self.hands
    }

    /// Whether another message has a live row with the timer name of this one.
    pub(crate) fn conflicts<const K: usize, const S: usize>(
        &self,
        state: &State<K, S, N>,
        key: u8,
    ) -> bool {
        let live = (0..).zip(&state.messages).filter(|(_, message)| message.row.is_some());
        self.is_timer(key) && live.into_iter().any(|(other, _)| self.is_timer(other))
    }

    pub(crate) fn claimable(&self, row: &Row<N>, now: N) -> bool {
        let free = row.lease.is_none_or(|lease| {
            let over = lease.is_over(now, self.ttl) && !self.has(Mutant::ExpiredNotReclaimed);
            over || self.has(Mutant::ClaimOverLease)
        });
        free && (row.due <= now || self.has(Mutant::ClaimBeforeDue))
    }

    /// Whether the action can be taken.
    #[must_use]
    pub fn allow<const K: usize, const S: usize>(
        &self,
        state: &State<K, S, N>,
        action: Action,
    ) -> bool {
        let message = |key: u8| &state.messages[usize::from(key)];
        let phase = |slot: u8| state.slots[usize::from(slot)].map(|slot| slot.phase);
        match action {
            Action::Tick => true,
            Action::Publish { key } | Action::RollBack { key } => {
                message(key).fate == Fate::Unwritten
            }
            Action::Cancel { key } => {
                // By its name, which may be another row's by now.
                let own = message(key).row.is_some() || !self.conflicts(state, key);
                self.is_timer(key) && message(key).fate == Fate::Committed && own
            }
            Action::Replay { key } => message(key).letters > 0,
            Action::Claim { slot, key } => {
                let row = message(key).row;
                phase(slot).is_none() && row.is_some_and(|row| self.claimable(&row, state.now))
            }
            Action::Receive { slot } | Action::Abandon { slot } => phase(slot) == Some(Phase::Sent),
            Action::Start { slot } => self.can_start(state, slot),
            Action::Finish { slot, verdict } => {
                phase(slot) == Some(Phase::Running) && verdict != Verdict::TooOften
            }
            Action::Settle { slot, .. } => {
                matches!(phase(slot), Some(Phase::Done(_) | Phase::Half(_)))
            }
            Action::Refuse { slot } | Action::Keep { slot } => state.slots[usize::from(slot)]
                .is_some_and(|slot| {
                    matches!(slot.phase, Phase::Done(verdict)
                    if self.settlement(state, &slot, verdict) == Settlement::Bury)
                }),
            // The lease of what waits for its turn to start goes on, too.
            Action::Extend { slot } => {
                matches!(phase(slot), Some(Phase::Buffered | Phase::Running))
            }
            Action::Mark { slot } => self.can_be_alone(state, slot),
            Action::Join { slot } => state.slots[usize::from(slot)]
                .is_some_and(|slot| slot.phase == Phase::Running && slot.case == Case::Alone),
            Action::CutOff { slot } => phase(slot) == Some(Phase::Running),
            Action::Release { slot } => {
                phase(slot) == Some(Phase::Buffered)
                    || phase(slot) == Some(Phase::Running) && self.has(Mutant::ReleaseOfRunning)
            }
            Action::Crash { worker } => (0..)
                .zip(&state.slots)
                .any(|(slot, it)| it.is_some() && self.worker_of(slot) == worker),
        }
    }

    /// In time, and nobody of the worker runs alone.
    fn can_start<const K: usize, const S: usize>(&self, state: &State<K, S, N>, at: u8) -> bool {
        let Some(slot) = state.slots[usize::from(at)] else { return false };
        let in_time = state.now < slot.deadline || self.has(Mutant::NoDeadlineCheck);
        slot.phase == Phase::Buffered && in_time && !self.is_another_alone(state, at)
    }

    /// A suspect, and nobody of the worker runs.
    fn can_be_alone<const K: usize, const S: usize>(&self, state: &State<K, S, N>, at: u8) -> bool {
        let Some(slot) = state.slots[usize::from(at)] else { return false };
        slot.phase == Phase::Buffered
            && slot.case == Case::Suspect
            && !self.is_another_alone(state, at)
            && self.running_beside(state, at).next().is_none()
    }

    /// Something else in the same worker runs alone, or is about to.
    fn is_another_alone<const K: usize, const S: usize>(
        &self,
        state: &State<K, S, N>,
        at: u8,
    ) -> bool {
        let alone = |it: Slot<N>| {
            it.case == Case::Alone && matches!(it.phase, Phase::Buffered | Phase::Running)
        };
        self.beside(state, at).any(alone)
    }

    /// What else runs in the same worker.
    pub(crate) fn running_beside<const K: usize, const S: usize>(
        self,
        state: &State<K, S, N>,
        at: u8,
    ) -> impl Iterator<Item = Slot<N>> {
        self.beside(state, at).filter(|slot| slot.phase == Phase::Running)
    }

    fn beside<const K: usize, const S: usize>(
        self,
        state: &State<K, S, N>,
        at: u8,
    ) -> impl Iterator<Item = Slot<N>> {
        let worker = self.worker_of(at);
        let others = (0..).zip(state.slots).filter(move |(other, _)| *other != at);
        let same = others.filter(move |(other, _)| self.worker_of(*other) == worker);
        same.filter_map(|(_, slot)| slot)
    }

    /// Takes an action that is allowed.
    #[must_use]
    pub fn step<const K: usize, const S: usize>(
        &self,
        mut state: State<K, S, N>,
        action: Action,
    ) -> (State<K, S, N>, Outcome) {
        let outcome = match action {
            Action::Tick => {
                state.now = state.now + N::from(true);
                Outcome::Silent
            }
            Action::Publish { key } => self.publish(&mut state, key),
            Action::RollBack { key } => {
                let message = &mut state.messages[usize::from(key)];
                message.fate = Fate::RolledBack;
                if self.has(Mutant::PublishOutsideTransaction) {
                    message.row = Some(Row::new(state.now));
                }
                Outcome::Silent
            }
            Action::Cancel { key } => {
                let message = &mut state.messages[usize::from(key)];
                let leased = Mutant::CancelOfLeased;
                let free = message.row.is_some_and(|it| it.lease.is_none() || self.has(leased));
                if free {
                    (message.row, message.fate) = (None, Fate::Cancelled);
                }
                Outcome::Told(free)
            }
            Action::Replay { key } => self.replay(&mut state, key),
            Action::Claim { slot, key } => self.claim(&mut state, slot, key),
            Action::Receive { slot } => {
                if let Some(slot) = &mut state.slots[usize::from(slot)] {
                    slot.phase = Phase::Buffered;
                    if self.has(Mutant::DeadlineFromAnswer) {
                        slot.deadline = state.now + self.ttl;
                    }
                }
                Outcome::Silent
            }
            Action::Crash { worker } => {
                for (slot, it) in (0..).zip(&mut state.slots) {
                    if self.worker_of(slot) == worker {
                        *it = None;
                    }
                }
                Outcome::Silent
            }
            Action::Abandon { slot }
            | Action::Start { slot }
            | Action::Finish { slot, .. }
            | Action::Settle { slot, .. }
            | Action::Refuse { slot }
            | Action::Keep { slot }
            | Action::Extend { slot }
            | Action::Mark { slot }
            | Action::Join { slot }
            | Action::CutOff { slot }
            | Action::Release { slot } => self.work(&mut state, slot, action),
        };
        (state, outcome)
    }

    fn publish<const K: usize, const S: usize>(
        &self,
        state: &mut State<K, S, N>,
        key: u8,
    ) -> Outcome {
        let taken = self.conflicts(state, key) && !self.has(Mutant::TimerUnchecked);
        let message = &mut state.messages[usize::from(key)];
        message.fate = if taken { Fate::Refused } else { Fate::Committed };
        if !taken && !self.has(Mutant::PublishAfterCommit) {
            message.row = Some(Row::new(state.now + self.delay_of(key)));
        }
        Outcome::Told(!taken)
    }

    fn replay<const K: usize, const S: usize>(
        &self,
        state: &mut State<K, S, N>,
        key: u8,
    ) -> Outcome {
        let taken = self.conflicts(state, key);
        let message = &mut state.messages[usize::from(key)];
        if !taken {
            message.row = Some(Row::new(state.now));
        }
        if !taken && !self.has(Mutant::ReplayLeavesLetter) {
            message.letters -= 1;
            message.replayed += 1;
        }
        if taken && self.has(Mutant::ReplayLosesOnConflict) {
            message.letters -= 1;
        }
        Outcome::Told(!taken)
    }

    fn claim<const K: usize, const S: usize>(
        &self,
        state: &mut State<K, S, N>,
        at: u8,
        key: u8,
    ) -> Outcome {
        let now = state.now;
        let Message { row: Some(row), truth, .. } = &mut state.messages[usize::from(key)] else {
            return Outcome::Silent;
        };
        let before = match row.lease {
            None => Before::Settled,
            Some(lease) if lease.alone => Before::ExpiredAlone,
            Some(_) => Before::Expired,
        };
        let token =
            if self.has(Mutant::WorkerAsToken) { self.worker_of(at) } else { truth.fresh_token() };
        truth.claims += 1;
        truth.tokens |= 1 << token;
        let born = now - N::from(self.has(Mutant::LeaseBornOld));
        row.lease = Some(Lease { token, at: born, alone: false, claim: truth.claims });
        row.deliveries = row.deliveries + N::from(!self.has(Mutant::ClaimUncounted));
        let expired = before != Before::Settled;
        let counts = expired && self.has(Mutant::CrashCountsAttempt);
        row.attempts = row.attempts + N::from(counts);
        let too_often = self.max_deliveries.is_some_and(|max| row.deliveries > max);
        let never_failed = row.attempts == N::default();
        let case = match before {
            _ if !too_often => Case::Plain,
            Before::Expired if !self.has(Mutant::InnocentsBuried) => Case::Suspect,
            // Its deliveries ended with their processes, or with drains.
            Before::Settled if never_failed && !self.has(Mutant::SuspectsForgotten) => {
                Case::Suspect
            }
            _ => Case::Guilty,
        };
        let (claim, deadline) = (truth.claims, now + self.ttl);
        let (phase, ends) = (Phase::Sent, deadline);
        state.slots[usize::from(at)] =
            Some(Slot { key, token, claim, phase, case, deadline, ends });
        Outcome::Claimed(before)
    }
}

impl Truth {
    /// Tokens are numbers in the order of their use.
    #[must_use]
    pub fn fresh_token(&self) -> u8 {
        u8::try_from(self.tokens.trailing_ones()).unwrap_or(u8::MAX)
    }

    /// Its letter could not be written.
    pub(crate) fn condemn(&mut self, landed: bool) {
        if landed {
            self.condemned = self.claims + 1;
        }
    }
}
