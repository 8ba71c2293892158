//! What the built-in strategies have in common: jitter and the two caps.

use std::time::Duration;

use super::FailedAttempt;
use crate::subscriber::LONGEST;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limits {
    pub(super) jitter: f64,
    pub(super) max_attempts: Option<u64>,
    pub(super) max_total_delay: Option<Duration>,
}

impl Limits {
    pub(super) const NONE: Self = Self { jitter: 0.0, max_attempts: None, max_total_delay: None };

    /// Jitters `seconds` and cuts the delay at `ceiling`. `None` when a cap is reached.
    pub(super) fn apply(
        &self,
        seconds: f64,
        ceiling: Option<Duration>,
        failed: &FailedAttempt<'_>,
    ) -> Option<Duration> {
        if self.max_attempts.is_some_and(|max| failed.attempts >= max) {
            return None;
        }
        let ceiling = ceiling.map_or(LONGEST, |limit| limit.min(LONGEST));
        // NaN and infinity (an overflowing power) end at the ceiling as well.
        let cut = |seconds: f64| {
            let below = seconds < ceiling.as_secs_f64();
            if below { Duration::from_secs_f64(seconds.max(0.0)) } else { ceiling }
        };
        let delay = cut(seconds * (1.0 + self.jitter * (fastrand::f64() - 0.5)));
        let Some(max) = self.max_total_delay else { return Some(delay) };
        // The jitter does not decide whether there is one more run.
        let fits = failed.elapsed.saturating_add(cut(seconds)) <= max;
        fits.then(|| delay.min(max.saturating_sub(failed.elapsed)))
    }

    /// `first` is the first delay.
    pub(super) fn check(&self, first: Duration) -> Result<(), String> {
        if !(0.0..=2.0).contains(&self.jitter) {
            return Err(format!("`jitter` is {}; it must lie between 0.0 and 2.0", self.jitter));
        }
        if self.max_attempts == Some(0) {
            return Err("`max_attempts` is 0; use `NoRetry` for no retry at all".into());
        }
        if let Some(total) = self.max_total_delay.filter(|total| *total < first) {
            return Err(format!(
                "`max_total_delay` is {total:?}, but the first retry comes after {first:?}: there \
                 would be none; raise it, or use `NoRetry`"
            ));
        }
        Ok(())
    }
}

/// Gives a strategy with a field `limits` the builder methods for it.
macro_rules! with_limits {
    ($strategy:ty) => {
        impl $strategy {
            /// Spreads each delay by a factor of `1 ± jitter/2`. `jitter` is 0.0 to 2.0.
            #[must_use]
            pub const fn jitter(mut self, jitter: f64) -> Self {
                self.limits.jitter = jitter;
                self
            }

            /// Ends the retries after this many failed runs. At least 1.
            #[must_use]
            pub const fn max_attempts(mut self, attempts: u64) -> Self {
                self.limits.max_attempts = Some(attempts);
                self
            }

            /// Ends the retries when the strategy's next delay would end later than this
            /// after the first failure.
            ///
            /// A delay that an error asks for ([`Failure`](trait@crate::Failure), `after`)
            /// is not measured. The time that runs and claims take counts too, so give
            /// more than the sum of the delays that you want.
            #[must_use]
            pub const fn max_total_delay(mut self, total: Duration) -> Self {
                self.limits.max_total_delay = Some(total);
                self
            }
        }
    };
}
pub(super) use with_limits;
