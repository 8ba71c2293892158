//! What a worker does with a delivery. Every write but the claim's is made under the
//! delivery's token.

use crate::Verdict;
use crate::{Action, Case, Lease, Mutant, Outcome, Phase, Row, Rules, Settlement, Slot, State};

impl Rules {
    /// What becomes of a row with this verdict.
    #[must_use]
    pub fn settlement<const K: usize, const S: usize>(
        &self,
        state: &State<K, S>,
        slot: &Slot,
        verdict: Verdict,
    ) -> Settlement {
        let attempts = state.row_of(slot).map_or(0, |row| row.attempts) + 1;
        let last = self.max_attempts + u8::from(self.has(Mutant::AttemptTooMany));
        match verdict {
            Verdict::Ok => Settlement::Ack,
            Verdict::Fail if attempts < last => Settlement::Retry,
            Verdict::Fail | Verdict::Reject | Verdict::TooOften => Settlement::Bury,
            Verdict::Snooze => Settlement::Snooze,
        }
    }

    pub(crate) fn work<const K: usize, const S: usize>(
        &self,
        state: &mut State<K, S>,
        at: u8,
        action: Action,
    ) -> Outcome {
        let Some(mut slot) = state.slots[usize::from(at)] else { return Outcome::Silent };
        let (outcome, left) = match (action, slot.phase) {
            (Action::Start { .. }, _) => self.start(state, at, slot),
            (Action::Finish { verdict, .. }, _) => {
                slot.phase = Phase::Done(verdict);
                let truth = &mut state.messages[usize::from(slot.key)].truth;
                if verdict == Verdict::Ok {
                    truth.handled |= 1 << slot.claim;
                }
                truth.failed |= matches!(verdict, Verdict::Fail | Verdict::Reject);
                (Outcome::Silent, Some(slot))
            }
            (Action::Settle { answered, .. }, Phase::Done(verdict)) => {
                self.settle(state, slot, verdict, answered)
            }
            (Action::Settle { .. }, Phase::Half(_)) => {
                let landed = self.write(state, &slot, Mutant::BuryWithoutToken, |_| None);
                (Outcome::Landed(landed), None)
            }
            (Action::Refuse { .. }, _) => {
                if self.has(Mutant::RefusedLetterDeletes) {
                    self.write(state, &slot, Mutant::BuryWithoutToken, |_| None);
                }
                (Outcome::Silent, Some(slot))
            }
            (Action::Extend { .. }, _) => self.extend(state, slot, slot.token, false),
            (Action::Abandon { .. }, _) => {
                (self.give_back(state, &slot, Mutant::AbandonWithoutToken), None)
            }
            (Action::Release { .. }, Phase::Running) => {
                (self.give_back(state, &slot, Mutant::ReleaseWithoutToken), Some(slot))
            }
            (Action::Release { .. }, _)
                if self.has(Mutant::LateIsFailure) && state.now >= slot.deadline =>
            {
                slot.phase = Phase::Done(Verdict::Fail);
                (Outcome::Silent, Some(slot))
            }
            (Action::Release { .. }, _) => {
                (self.give_back(state, &slot, Mutant::ReleaseWithoutToken), None)
            }
            _ => (Outcome::Silent, Some(slot)),
        };
        state.slots[usize::from(at)] = left;
        outcome
    }

    /// Rewrites or deletes the row of a slot if its token still holds it.
    fn write<const K: usize, const S: usize>(
        &self,
        state: &mut State<K, S>,
        slot: &Slot,
        unfenced: Mutant,
        change: impl FnOnce(Row) -> Option<Row>,
    ) -> bool {
        let message = &mut state.messages[usize::from(slot.key)];
        let Some(row) = message.row else { return false };
        let held = row.lease.is_some_and(|lease| lease.token == slot.token);
        if held || self.has(unfenced) {
            message.row = change(row);
            return true;
        }
        false
    }

    fn start<const K: usize, const S: usize>(
        &self,
        state: &mut State<K, S>,
        at: u8,
        mut slot: Slot,
    ) -> (Outcome, Option<Slot>) {
        if slot.case == Case::Guilty {
            slot.phase = Phase::Done(Verdict::TooOften);
            return (Outcome::Silent, Some(slot));
        }
        let mut outcome = Outcome::Silent;
        if slot.case == Case::Suspect && self.running_beside(state, at).next().is_some() {
            // Nothing is concluded of a run beside others.
            slot.case = Case::Plain;
        } else if slot.case == Case::Suspect {
            // One step with the start: a process that dies between the two is taken to
            // have been brought down by the row.
            let token = state.messages[usize::from(slot.key)].truth.fresh_token();
            let (marked, left) = self.extend(state, slot, token, true);
            let Some(left) = left else { return (marked, None) };
            (outcome, slot) = (marked, left);
        }
        slot.phase = Phase::Running;
        let truth = &mut state.messages[usize::from(slot.key)].truth;
        truth.started = slot.claim;
        truth.silent |= slot.case == Case::Suspect;
        if self.has(Mutant::AckBeforeHandler) {
            self.write(state, &slot, Mutant::AckWithoutToken, |_| None);
        }
        (outcome, Some(slot))
    }

    /// Starts the lease anew, under a token that may be another. Whoever lost it stops.
    fn extend<const K: usize, const S: usize>(
        &self,
        state: &mut State<K, S>,
        mut slot: Slot,
        token: u8,
        alone: bool,
    ) -> (Outcome, Option<Slot>) {
        let now = state.now;
        let landed = self.write(state, &slot, Mutant::ExtendWithoutToken, |row| {
            let old = row.lease.filter(|_| self.has(Mutant::ExtendForgotten));
            let alone = alone || row.lease.is_some_and(|lease| lease.alone);
            let new = Lease { token, at: now, alone, claim: slot.claim };
            Some(Row { lease: old.or(Some(new)), ..row })
        });
        if !landed {
            return (Outcome::Landed(false), None);
        }
        state.messages[usize::from(slot.key)].truth.tokens |= 1 << token;
        slot.token = token;
        slot.deadline = now + self.ttl;
        slot.ends = slot.deadline;
        (Outcome::Landed(true), Some(slot))
    }

    /// As if it had never been claimed. Of a row that was delivered too often nobody
    /// would know any more that leases of it ran out, so it is not one any longer.
    fn give_back<const K: usize, const S: usize>(
        &self,
        state: &mut State<K, S>,
        slot: &Slot,
        unfenced: Mutant,
    ) -> Outcome {
        let landed = self.write(state, slot, unfenced, |row| {
            let counted = self.has(Mutant::ReleaseCounted);
            let deliveries = if counted { row.deliveries } else { self.given_back(row.deliveries) };
            Some(Row { lease: None, deliveries, ..row })
        });
        Outcome::Landed(landed)
    }

    /// Deliveries left when one is taken back.
    #[must_use]
    pub fn given_back(&self, deliveries: u8) -> u8 {
        let left = deliveries.saturating_sub(1);
        let most = self.max_deliveries.filter(|_| !self.has(Mutant::SuspectsForgotten));
        left.min(most.map_or(u8::MAX, |max| max.saturating_sub(1)))
    }

    fn settle<const K: usize, const S: usize>(
        &self,
        state: &mut State<K, S>,
        mut slot: Slot,
        verdict: Verdict,
        answered: bool,
    ) -> (Outcome, Option<Slot>) {
        let now = state.now;
        let landed = match self.settlement(state, &slot, verdict) {
            Settlement::Ack => self.write(state, &slot, Mutant::AckWithoutToken, |_| None),
            Settlement::Retry => self.write(state, &slot, Mutant::RetryWithoutToken, |row| {
                let from_claim = row.lease.filter(|_| self.has(Mutant::RetryTooEarly));
                let attempts = row.attempts + u8::from(!self.has(Mutant::RetryUncounted));
                let due = from_claim.map_or(now, |lease| lease.at) + self.delay;
                Some(Row { due, attempts, lease: None, ..row })
            }),
            Settlement::Snooze => self.write(state, &slot, Mutant::ReleaseWithoutToken, |row| {
                let deliveries = self.given_back(row.deliveries);
                Some(Row { due: now + self.delay, deliveries, lease: None, ..row })
            }),
            Settlement::Bury => {
                let stays = [Mutant::BuryInTwoSteps, Mutant::LetterWithoutDelete];
                let stays = stays.iter().any(|mutant| self.has(*mutant));
                let delete = |row| Some(row).filter(|_| stays);
                let landed = self.write(state, &slot, Mutant::BuryWithoutToken, delete);
                if landed && !self.has(Mutant::DeleteWithoutLetter) {
                    state.messages[usize::from(slot.key)].letters += 1;
                }
                if self.has(Mutant::BuryInTwoSteps) {
                    slot.phase = Phase::Half(verdict);
                    return (Outcome::Landed(landed), Some(slot));
                }
                landed
            }
        };
        if landed {
            state.messages[usize::from(slot.key)].truth.silent = false;
        }
        if self.has(Mutant::RunAgainUnanswered) {
            slot.phase = Phase::Buffered;
        }
        (Outcome::Landed(landed), Some(slot).filter(|_| !answered))
    }
}
