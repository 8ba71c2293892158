//! What a worker does with a delivery. Every write but the claim's is made under the
//! delivery's token.

use crate::{Action, Case, Lease, Mutant, Number, Outcome, Phase, Row, Rules, Settlement};
use crate::{Slot, State, Verdict};

impl<N: Number> Rules<N> {
    /// What becomes of a row with this verdict.
    #[must_use]
    pub fn settlement<const K: usize, const S: usize>(
        &self,
        state: &State<K, S, N>,
        slot: &Slot<N>,
        verdict: Verdict,
    ) -> Settlement {
        let attempts = state.row_of(slot).map_or(N::default(), |row| row.attempts);
        let attempts = attempts + N::from(true);
        let last = self.max_attempts + N::from(self.has(Mutant::AttemptTooMany));
        match verdict {
            Verdict::Ok => Settlement::Ack,
            Verdict::Fail if attempts < last => Settlement::Retry,
            Verdict::Fail | Verdict::Reject | Verdict::TooOften => Settlement::Bury,
            Verdict::Snooze => Settlement::Snooze,
        }
    }

    pub(crate) fn work<const K: usize, const S: usize>(
        &self,
        state: &mut State<K, S, N>,
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
            (Action::Keep { .. }, Phase::Done(verdict)) => (self.keep(state, &slot, verdict), None),
            (Action::Extend { .. }, _) => self.extend(state, slot, slot.token, None),
            (Action::Mark { .. }, _) => self.go_on(state, slot, true),
            (Action::Join { .. }, _) => self.go_on(state, slot, false),
            (Action::CutOff { .. }, _) => (self.cut_off(state, &slot), None),
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
            (Action::Release { .. }, _) if slot.case == Case::Guilty => {
                (self.keep(state, &slot, Verdict::TooOften), None)
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
        state: &mut State<K, S, N>,
        slot: &Slot<N>,
        unfenced: Mutant,
        change: impl FnOnce(Row<N>) -> Option<Row<N>>,
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
        state: &mut State<K, S, N>,
        at: u8,
        mut slot: Slot<N>,
    ) -> (Outcome, Option<Slot<N>>) {
        let mut outcome = Outcome::Silent;
        match slot.case {
            Case::Guilty => {
                slot.phase = Phase::Done(Verdict::TooOften);
                return (Outcome::Silent, Some(slot));
            }
            // Nothing is concluded of a run beside others.
            Case::Suspect if self.running_beside(state, at).next().is_some() => {
                slot.case = Case::Plain;
            }
            Case::Suspect => {
                let (marked, left) = self.go_on(state, slot, true);
                let Some(left) = left else { return (marked, None) };
                (outcome, slot) = (marked, left);
            }
            Case::Plain | Case::Alone => {}
        }
        slot.phase = Phase::Running;
        state.messages[usize::from(slot.key)].truth.started = slot.claim;
        if self.has(Mutant::AckBeforeHandler) {
            self.write(state, &slot, Mutant::AckWithoutToken, |_| None);
        }
        (outcome, Some(slot))
    }

    /// Goes on under a token that says whether it runs alone. A process that dies while it
    /// says so is taken to have been brought down by the row; what becomes of it afterwards
    /// is not the row's doing any more.
    fn go_on<const K: usize, const S: usize>(
        &self,
        state: &mut State<K, S, N>,
        slot: Slot<N>,
        alone: bool,
    ) -> (Outcome, Option<Slot<N>>) {
        let key = usize::from(slot.key);
        let token = state.messages[key].truth.fresh_token();
        let slot = Slot { case: if alone { Case::Alone } else { Case::Plain }, ..slot };
        let (outcome, left) = self.extend(state, slot, token, Some(alone));
        if left.is_some() {
            state.messages[key].truth.silent = alone;
        }
        (outcome, left)
    }

    /// Starts the lease anew, under a token that may be another and say something else.
    /// Whoever lost it stops.
    fn extend<const K: usize, const S: usize>(
        &self,
        state: &mut State<K, S, N>,
        mut slot: Slot<N>,
        token: u8,
        alone: Option<bool>,
    ) -> (Outcome, Option<Slot<N>>) {
        let now = state.now;
        let landed = self.write(state, &slot, Mutant::ExtendWithoutToken, |row| {
            let old = row.lease.filter(|_| self.has(Mutant::ExtendForgotten));
            let alone = alone.unwrap_or_else(|| row.lease.is_some_and(|lease| lease.alone));
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
        state: &mut State<K, S, N>,
        slot: &Slot<N>,
        unfenced: Mutant,
    ) -> Outcome {
        let landed = self.write(state, slot, unfenced, |row| {
            let counted = self.has(Mutant::ReleaseCounted);
            let deliveries = if counted { row.deliveries } else { self.given_back(row.deliveries) };
            Some(Row { lease: None, deliveries, ..row })
        });
        state.messages[usize::from(slot.key)].truth.silent &= !landed;
        Outcome::Landed(landed)
    }

    /// It has failed for good, and nothing says so. One that was condemned unrun, or is to
    /// be, is leased on under a token that condemns it again.
    fn keep<const K: usize, const S: usize>(
        &self,
        state: &mut State<K, S, N>,
        slot: &Slot<N>,
        verdict: Verdict,
    ) -> Outcome {
        let (key, due) = (usize::from(slot.key), state.now + self.ttl);
        let condemned = verdict == Verdict::TooOften;
        if condemned && !self.has(Mutant::CondemnedGivenBack) {
            let token = state.messages[key].truth.fresh_token();
            let (outcome, left) = self.extend(state, *slot, token, Some(true));
            state.messages[key].truth.condemn(left.is_some());
            return outcome;
        }
        let landed = self.write(state, slot, Mutant::ReleaseWithoutToken, |row| {
            let counts = condemned || self.has(Mutant::KeptCounted);
            let deliveries = if counts { row.deliveries } else { self.given_back(row.deliveries) };
            Some(Row { due, deliveries, lease: None, ..row })
        });
        let truth = &mut state.messages[key].truth;
        truth.silent &= !landed || condemned;
        truth.condemn(landed && condemned);
        Outcome::Landed(landed)
    }

    /// It has run: that delivery counts.
    fn cut_off<const K: usize, const S: usize>(
        &self,
        state: &mut State<K, S, N>,
        slot: &Slot<N>,
    ) -> Outcome {
        let landed = self.write(state, slot, Mutant::CutOffWithoutToken, |row| {
            let uncounted = self.has(Mutant::CutOffUncounted);
            let deliveries =
                if uncounted { self.given_back(row.deliveries) } else { row.deliveries };
            Some(Row { lease: None, deliveries, ..row })
        });
        state.messages[usize::from(slot.key)].truth.silent &= !landed;
        Outcome::Landed(landed)
    }

    /// Deliveries left when one is taken back.
    #[must_use]
    pub fn given_back(&self, deliveries: N) -> N {
        let one = N::from(true);
        let left = deliveries.less(one);
        let most = self.max_deliveries.filter(|_| !self.has(Mutant::SuspectsForgotten));
        most.map_or(left, |max| left.min(max.less(one)))
    }

    fn settle<const K: usize, const S: usize>(
        &self,
        state: &mut State<K, S, N>,
        mut slot: Slot<N>,
        verdict: Verdict,
        answered: bool,
    ) -> (Outcome, Option<Slot<N>>) {
        let now = state.now;
        let landed = match self.settlement(state, &slot, verdict) {
            Settlement::Ack => self.write(state, &slot, Mutant::AckWithoutToken, |_| None),
            Settlement::Retry => self.write(state, &slot, Mutant::RetryWithoutToken, |row| {
                let from_claim = row.lease.filter(|_| self.has(Mutant::RetryTooEarly));
                let attempts = row.attempts + N::from(!self.has(Mutant::RetryUncounted));
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
