//! What failures of claims have the next ones do: wait, and ask for less.

use std::time::Duration;

use super::backoff::Backoff;
use crate::error::StoreError;

/// A claim is halved so often, and of a thousand rows is left with one.
const HALVINGS: u32 = 10;
/// After so many failures in a row, each of a statement that was sent, it may be one claim of
/// several that takes too long.
const MANY: u32 = 3;

pub(super) struct Failures {
    backoff: Backoff,
    /// The last claim failed in a way that passes by itself.
    passing: bool,
    /// The server may have too little time for more, as with a `statement_timeout` that ends
    /// before large rows are sent.
    halvings: u32,
    /// Of statements that were sent, since the last answer.
    in_a_row: u32,
}

impl Failures {
    pub(super) fn none() -> Self {
        Self { backoff: Backoff::of_errors(), passing: false, halvings: 0, in_a_row: 0 }
    }

    /// How long to rest after one more.
    pub(super) fn again(&mut self, failed: &StoreError) -> Duration {
        self.passing = failed.transient;
        self.halvings = (self.halvings + u32::from(failed.transient)).min(HALVINGS);
        let sent = failed.transient && !failed.unsent;
        self.in_a_row = self.in_a_row.saturating_add(u32::from(sent));
        self.backoff.after(failed.transient)
    }

    pub(super) fn in_a_row(&self) -> u32 {
        self.in_a_row
    }

    /// Whether the next claim is better made apart from those of others.
    pub(super) fn are_many(&self) -> bool {
        self.in_a_row >= MANY
    }

    /// A claim was answered.
    pub(super) fn end(&mut self) {
        self.backoff.reset();
        (self.passing, self.in_a_row) = (false, 0);
        self.halvings = self.halvings.saturating_sub(1);
    }

    pub(super) fn pass(&self) -> bool {
        self.passing
    }

    /// How many rows to ask for, of so many.
    pub(super) fn leave_of(&self, most: usize) -> usize {
        (most >> self.halvings).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_that_passes_halves_a_claim_and_each_answer_doubles_it() {
        let mut failures = Failures::none();
        failures.again(&StoreError::new("claim", "refused", false));
        assert_eq!(failures.leave_of(1000), 1000, "less is refused as well");
        let asked = |failures: &mut Failures| {
            failures.again(&StoreError::new("claim", "no answer", true));
            failures.leave_of(1000)
        };
        let all: Vec<_> = (0..12).map(|_| asked(&mut failures)).collect();
        assert_eq!(all, [500, 250, 125, 62, 31, 15, 7, 3, 1, 1, 1, 1]);
        let mut answered = || {
            failures.end();
            failures.leave_of(1000)
        };
        let all: Vec<_> = (0..11).map(|_| answered()).collect();
        assert_eq!(all, [1, 3, 7, 15, 31, 62, 125, 250, 500, 1000, 1000]);
    }

    #[test]
    fn what_no_connection_was_there_for_speaks_against_no_claim() {
        let mut failures = Failures::none();
        for (unsent, many) in [(true, false), (false, true)] {
            let failed = StoreError { unsent, ..StoreError::new("claim", "no answer", true) };
            for _ in 0..MANY {
                failures.again(&failed);
            }
            assert_eq!(failures.are_many(), many);
        }
        failures.end();
        assert!(!failures.are_many());
    }
}
