//! How long to wait after the n-th failure or empty look in a row. Waits double up to a limit, so
//! that a process which finds nothing, or fails, asks less and less often. They are spread, so that
//! processes do not ask together.

use std::time::Duration;

/// What passes by itself is tried again after this time at the latest: whoever waited longer for a
/// server would not be back when the server is.
const OUTAGE: Duration = Duration::from_millis(1500);

/// Waits that double from `first` to `last`. They are spread, so that processes that failed
/// together do not come back together.
#[derive(Debug)]
pub(super) struct Backoff {
    first: Duration,
    last: Duration,
    /// The shortest and the longest wait, as shares of the doubled one.
    spread: (f64, f64),
    steps: u32,
}

impl Backoff {
    fn new(first: Duration, last: Duration, spread: (f64, f64)) -> Self {
        Self { first, last, spread, steps: 0 }
    }

    /// For looks that find nothing.
    pub(super) fn of_polls(first: Duration, last: Duration) -> Self {
        Self::new(first, last, (0.75, 1.0))
    }

    /// For statements and connections that fail.
    pub(super) fn of_errors() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(30), (0.5, 1.5))
    }

    pub(super) fn next(&mut self) -> Duration {
        self.up_to(self.last)
    }

    /// The wait after a failure, which may be one that passes by itself.
    pub(super) fn after(&mut self, transient: bool) -> Duration {
        self.up_to(if transient { OUTAGE.min(self.last) } else { self.last })
    }

    fn up_to(&mut self, last: Duration) -> Duration {
        let wait = self.first.saturating_mul(1 << self.steps.min(30));
        self.steps = self.steps.saturating_add(1);
        let (shortest, longest) = self.spread;
        // The limit is a promise, and waits that have reached it are still spread.
        wait.min(last.div_f64(longest))
            .mul_f64(shortest + fastrand::f64() * (longest - shortest))
            .min(last)
    }

    /// Starts over. True if there was a wait since the last time.
    pub(super) fn reset(&mut self) -> bool {
        std::mem::take(&mut self.steps) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_within_their_bounds_and_start_over() {
        let (first, last) = (Duration::from_millis(100), Duration::from_secs(30));
        let mut backoff = Backoff::of_errors();
        for step in 0..100 {
            let wait = backoff.next();
            assert!(wait <= last, "step {step}: {wait:?}");
            assert!(wait >= (first * (1 << step.min(8))).min(last / 2).mul_f64(0.5));
        }
        backoff.reset();
        assert!(backoff.next() <= first * 2);
    }

    #[test]
    fn what_passes_by_itself_is_tried_again_every_second_or_so() {
        let mut backoff = Backoff::of_errors();
        let waits: Vec<_> = (0..100).map(|_| backoff.after(true)).collect();
        assert!(waits.iter().all(|wait| *wait <= OUTAGE), "{waits:?}");
        assert!(waits[4..].iter().all(|wait| *wait >= OUTAGE / 3), "{waits:?}");
        let at_the_limit = waits.iter().filter(|wait| **wait == OUTAGE).count();
        assert!(at_the_limit < 10, "{at_the_limit} would come back together");
        assert!(backoff.after(false) > 6 * OUTAGE, "and what does not pass, less often");
    }
}
