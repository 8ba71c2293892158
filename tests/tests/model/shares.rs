//! What the sequences were: a test that never expires a lease proves little.

use std::collections::BTreeMap;

use crate::machine::Effect;
use crate::step::{RULES, Step};

#[derive(Default)]
pub struct Shares {
    sequences: usize,
    steps: usize,
    kinds: BTreeMap<&'static str, usize>,
    /// Sequences in which a delivery was settled under a lease that had run out, and those
    /// in which another claim had the row by then.
    expired: usize,
    lost: usize,
    /// Either.
    late: usize,
}

/// Of one sequence.
#[derive(Default)]
pub struct Seen {
    expired: bool,
    lost: bool,
}

impl Shares {
    pub fn count(&mut self, seen: &mut Seen, step: &Step, effects: &[Effect]) {
        self.steps += 1;
        *self.kinds.entry(step.kind()).or_default() += 1;
        let Some(before) = effects.first().map(|effect| effect.before) else { return };
        for slot in step.settled().iter().filter_map(|slot| before.slots[usize::from(*slot)]) {
            let lease = before.messages[usize::from(slot.key)].row.and_then(|row| row.lease);
            let own = lease.filter(|lease| lease.claim == slot.claim);
            seen.expired |= own.is_some_and(|lease| lease.is_over(before.now, RULES.ttl));
            seen.lost |= lease.is_some() && own.is_none();
        }
    }

    pub fn end(&mut self, seen: &Seen) {
        self.sequences += 1;
        self.expired += usize::from(seen.expired);
        self.lost += usize::from(seen.lost);
        self.late += usize::from(seen.expired || seen.lost);
    }

    /// # Panics
    /// When something came too seldom.
    pub fn check(&self, name: &str) {
        let percent = |part: usize, whole: usize| 100.0 * part as f64 / whole as f64;
        let expired = percent(self.expired, self.sequences);
        let lost = percent(self.lost, self.sequences);
        let late = percent(self.late, self.sequences);
        println!(
            "{name}: {} sequences, {} steps; {expired:.1} % settled after expiry, \
             {lost:.1} % after another claim, {late:.1} % after either",
            self.sequences, self.steps
        );
        assert!(late >= 20.0, "expiry or a claim before settle in {late:.1} % of the sequences");
        assert!(lost >= 10.0, "another claim before settle in {lost:.1} % of the sequences");
        for kind in Step::KINDS {
            let share = percent(self.kinds.get(kind).copied().unwrap_or(0), self.steps);
            println!("  {kind}: {share:.1} %");
            assert!(share >= 0.5, "{kind} is {share:.2} % of the steps");
        }
    }
}
