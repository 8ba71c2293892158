//! What failed claims mean for the next ones: they wait, and they ask for fewer rows. The server
//! may have too little time for a large claim. So each failure that may pass halves the next claim,
//! and answers double it again.

use std::time::Duration;

use super::backoff::Backoff;
use crate::error::StoreError;

/// How often a claim is halved at most: a claim of a thousand rows then asks for one.
const HALVINGS: u32 = 10;
/// A size that has failed once more is tried again after twice as many answers, but no more than
/// these.
const MOST_ANSWERS: u32 = 32;
/// After this many failures in a row, each of a statement that was sent, one claim of several may
/// be what takes too long.
const MANY: u32 = 3;

pub(super) struct Failures {
    backoff: Backoff,
    /// The last claim failed in a way that passes by itself.
    pub(super) passing: bool,
    /// How often the next claim is halved. The server may have too little time for more, as with a
    /// `statement_timeout` that ends before large rows are sent.
    halvings: u32,
    /// This many rows were too many, as far as is known.
    too_many: Option<usize>,
    /// Answers since the size was halved or doubled.
    answers: u32,
    /// After this many answers the size doubles again.
    doubles_after: u32,
    /// Failures of statements that were sent, since the last answer.
    pub(super) in_a_row: u32,
}

impl Failures {
    pub(super) fn none() -> Self {
        Self {
            backoff: Backoff::of_errors(),
            passing: false,
            halvings: 0,
            too_many: None,
            answers: 0,
            doubles_after: 1,
            in_a_row: 0,
        }
    }

    /// Notes one more failure, of a claim that asked for `asked` rows. Returns how long to rest.
    pub(super) fn again(&mut self, failed: &StoreError, asked: usize) -> Duration {
        self.passing = failed.transient;
        self.halvings = (self.halvings + u32::from(failed.transient)).min(HALVINGS);
        self.answers = 0;
        let sent = failed.transient && !failed.unsent;
        if sent {
            // In an outage only the first failure says something about the size.
            if self.too_many.is_none_or(|size| asked < size) {
                self.too_many = Some(asked);
            } else if self.in_a_row == 0 {
                self.doubles_after = (2 * self.doubles_after).min(MOST_ANSWERS);
            }
        }
        self.in_a_row = self.in_a_row.saturating_add(u32::from(sent));
        self.backoff.after(failed.transient)
    }

    /// Whether it got no answer again and again, though its statements were sent. The next claim is
    /// then better made apart from those of others.
    pub(super) fn are_many(&self) -> bool {
        self.in_a_row >= MANY
    }

    /// Notes that a claim was answered with `rows` rows. True if the claims before it failed.
    pub(super) fn end(&mut self, rows: usize) -> bool {
        let failed = self.backoff.reset();
        (self.passing, self.in_a_row) = (false, 0);
        if self.too_many.is_some_and(|size| rows >= size) {
            (self.too_many, self.doubles_after) = (None, 1);
        }
        self.answers = self.answers.saturating_add(1);
        if self.answers >= self.doubles_after {
            (self.halvings, self.answers) = (self.halvings.saturating_sub(1), 0);
        }
        failed
    }

    /// How many rows to ask for, instead of `most`.
    pub(super) fn leave_of(&self, most: usize) -> usize {
        (most >> self.halvings).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim of `asked` rows gets no answer.
    fn fails(failures: &mut Failures, asked: usize) {
        failures.again(&StoreError::new("claim", "no answer", true), asked);
    }

    #[test]
    fn each_failure_that_passes_halves_a_claim_and_each_answer_doubles_it() {
        let mut failures = Failures::none();
        failures.again(&StoreError::new("claim", "refused", false), 1000);
        assert_eq!(failures.leave_of(1000), 1000, "less is refused as well");
        let asked = |failures: &mut Failures| {
            fails(failures, failures.leave_of(1000));
            failures.leave_of(1000)
        };
        let all: Vec<_> = (0..12).map(|_| asked(&mut failures)).collect();
        assert_eq!(all, [500, 250, 125, 62, 31, 15, 7, 3, 1, 1, 1, 1]);
        let mut answered = || {
            failures.end(failures.leave_of(1000));
            failures.leave_of(1000)
        };
        let all: Vec<_> = (0..11).map(|_| answered()).collect();
        assert_eq!(all, [1, 3, 7, 15, 31, 62, 125, 250, 500, 1000, 1000]);
    }

    /// A failure after an answer is the first one again.
    #[test]
    fn an_answer_ends_the_long_rests() {
        let mut failures = Failures::none();
        let refused = StoreError::new("claim", "refused", false);
        let rests: Vec<_> = (0..20).map(|_| failures.again(&refused, 1)).collect();
        assert!(failures.end(1) && !failures.end(1));
        assert!(failures.again(&refused, 1) < rests[19] / 10, "{rests:?}");
    }

    /// Where the server always has too little time for more rows, few claims are in vain.
    #[test]
    fn a_size_that_failed_once_more_is_tried_more_and_more_seldom() {
        let mut failures = Failures::none();
        let (mut good, mut vain) = (Vec::new(), 0);
        while good.len() < 1000 {
            let asked = failures.leave_of(100);
            if asked > 30 {
                fails(&mut failures, asked);
                vain += 1;
            } else {
                failures.end(asked);
                good.push(asked);
            }
        }
        assert!(good.iter().all(|asked| *asked == 25));
        assert_eq!(vain, 2 + 5 + (1000 - (1 + 2 + 4 + 8 + 16)) / 32);
        for _ in 0..2 * MOST_ANSWERS {
            failures.end(failures.leave_of(100));
        }
        assert_eq!((failures.leave_of(100), failures.doubles_after), (100, 1), "as if new");
    }

    /// The size is back to the full with the next answers.
    #[test]
    fn an_outage_says_nothing_of_sizes_once_a_row_has_come() {
        let mut failures = Failures::none();
        // With room for twenty.
        for _ in 0..9 {
            let asked = failures.leave_of(1000).min(20);
            fails(&mut failures, asked);
        }
        assert_eq!(failures.leave_of(1000), 1);
        for _ in 0..9 {
            failures.end(failures.leave_of(1000).min(20));
        }
        assert_eq!(failures.leave_of(1000), 1000);
    }

    #[test]
    fn what_no_connection_was_there_for_speaks_against_no_claim() {
        let mut failures = Failures::none();
        for (unsent, many) in [(true, false), (false, true)] {
            let failed = StoreError { unsent, ..StoreError::new("claim", "no answer", true) };
            for _ in 0..MANY {
                failures.again(&failed, 10);
            }
            assert_eq!(failures.are_many(), many);
        }
        failures.end(0);
        assert!(!failures.are_many());
    }
}
