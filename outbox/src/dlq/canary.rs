//! The canary of a replay: a few letters go first, and how they end decides about the others.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tokio::time::{Instant, sleep};

use super::DeadLetters;
use crate::error::Result;
use crate::ops::on_desk;
use crate::subscriber::LONGEST;

/// How long to wait for the outcomes by default.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two looks: it grows from the first value to the last.
const LOOK_FIRST: Duration = Duration::from_millis(50);
const LOOK_LAST: Duration = Duration::from_secs(2);

/// Letters that are replayed before the others, and how many of them may fail again.
///
/// A subscriber with `AckFirst` deletes messages before it runs: none comes back, however its handler
/// ends.
///
/// If the database's clock is set back while the canary is watched, a letter that fails again may be
/// taken for handled: letters that failed before the canary are not looked at.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Canary {
    pub(super) letters: u64,
    share: f64,
    patience: Duration,
}

/// How the letters of a canary ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CanaryOutcome {
    /// Letters whose rows are gone and are not letters again. They were handled, if every reader
    /// of the queue keeps its dead letters in this table: a reader that keeps none deletes what
    /// fails for good.
    pub handled: u64,
    /// Letters that failed again: their rows are letters again.
    pub failed: u64,
    /// Letters whose rows were still in the outbox when the wait ended. They count as failed.
    pub waiting: u64,
    /// Whether the others may follow.
    pub passed: bool,
}

impl Canary {
    /// A canary of this many letters. At most this share of them, from 0 to 1, may fail again.
    pub fn new(letters: u64, share: f64) -> Self {
        Self { letters, share, patience: PATIENCE }
    }

    /// How long to wait for the outcomes; 60 s by default. A row that is still in the outbox then
    /// counts as failed: it is being retried, or nobody handles it.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    pub(super) fn wrong(&self) -> Option<String> {
        if self.letters == 0 {
            return Some("a canary has at least one letter".into());
        }
        let share = (0.0..=1.0).contains(&self.share);
        (!share).then(|| "the share of a canary that may fail is from 0 to 1".into())
    }

    fn allows(&self, bad: u64, of: usize) -> bool {
        // Divided, because a product such as 0.58 * 50.0 falls short of a whole number.
        bad as f64 / of as f64 <= self.share
    }
}

impl CanaryOutcome {
    /// The outcome when no letter could be put back.
    pub(super) fn of_none(passed: bool) -> Self {
        Self { handled: 0, failed: 0, waiting: 0, passed }
    }
}

impl DeadLetters {
    /// Waits for the outcomes of rows that were made since a time.
    pub(super) async fn watch(
        &self,
        canary: &Canary,
        rows: &[i64],
        since: SystemTime,
    ) -> Result<CanaryOutcome> {
        let end = Instant::now() + canary.patience.min(LONGEST);
        let mut pause = LOOK_FIRST;
        loop {
            // In this order: a row that fails between the two statements is a letter by the second.
            let here: HashSet<i64> =
                on_desk!(self.operator, desk => desk.live(rows).await)?.into_iter().collect();
            let again: HashSet<i64> =
                on_desk!(self.operator, desk => desk.failed_again(rows, since).await)?
                    .into_iter()
                    .collect();
            let failed = again.len() as u64;
            let waiting = here.difference(&again).count() as u64;
            let handled = rows.len() as u64 - failed - waiting;
            let hopeless = !canary.allows(failed, rows.len());
            let over = Instant::now() >= end;
            if waiting == 0 || hopeless || over {
                let passed = canary.allows(failed + waiting, rows.len());
                return Ok(CanaryOutcome { handled, failed, waiting, passed });
            }
            sleep(pause.min(end - Instant::now())).await;
            pause = (pause * 2).min(LOOK_LAST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Canary;

    #[test]
    fn a_share_that_is_met_exactly_is_allowed() {
        for of in 1..=200 {
            for bad in 0..=of {
                let share = bad as f64 / of as f64;
                let canary = Canary::new(of as u64, share);
                assert!(canary.allows(bad as u64, of), "{bad} of {of}");
                assert!(!canary.allows(bad as u64 + 1, of), "{bad} + 1 of {of}");
            }
        }
        // As somebody writes it.
        assert!(Canary::new(50, 0.58).allows(29, 50) && !Canary::new(50, 0.58).allows(30, 50));
    }
}
