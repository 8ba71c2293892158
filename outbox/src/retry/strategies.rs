//! The built-in strategies.

use std::time::Duration;

use super::limits::{Limits, with_limits};
use super::{FailedAttempt, RetryStrategy};

/// No retry: the first failure is the last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NoRetry;

impl RetryStrategy for NoRetry {
    fn next_delay(&self, _: &FailedAttempt<'_>) -> Option<Duration> {
        None
    }
}

/// Waits `initial · multiplier^(n−1)`, jittered, then cut at `max_delay`.
///
/// The default is the strategy of a subscriber that names none: 1 s, doubled,
/// at most 5 minutes, jitter 0.2, 10 attempts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exponential {
    initial: Duration,
    multiplier: f64,
    max_delay: Option<Duration>,
    limits: Limits,
}

impl Exponential {
    /// Starts at `initial` and doubles, without limits and without jitter.
    #[must_use]
    pub const fn new(initial: Duration) -> Self {
        Self { initial, multiplier: 2.0, max_delay: None, limits: Limits::NONE }
    }

    /// The factor from one delay to the next; at least 1.
    #[must_use]
    pub const fn multiplier(mut self, multiplier: f64) -> Self {
        self.multiplier = multiplier;
        self
    }

    /// The longest delay.
    #[must_use]
    pub const fn max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = Some(delay);
        self
    }
}

with_limits!(Exponential);

impl Default for Exponential {
    fn default() -> Self {
        Self::new(Duration::from_secs(1))
            .max_delay(Duration::from_secs(300))
            .jitter(0.2)
            .max_attempts(10)
    }
}

impl RetryStrategy for Exponential {
    fn next_delay(&self, failed: &FailedAttempt<'_>) -> Option<Duration> {
        let exponent = failed.attempts.saturating_sub(1) as f64;
        let seconds = self.initial.as_secs_f64() * self.multiplier.powf(exponent);
        self.limits.apply(seconds, self.max_delay, failed)
    }

    fn check(&self) -> Result<(), String> {
        // Delays that shrink would become zero, and retries run at full speed.
        if !(self.multiplier.is_finite() && self.multiplier >= 1.0) {
            return Err(format!("`multiplier` is {}; it must be at least 1", self.multiplier));
        }
        positive("initial", self.initial)?;
        self.max_delay.map_or(Ok(()), |delay| positive("max_delay", delay))?;
        self.limits.check(self.initial.min(self.max_delay.unwrap_or(Duration::MAX)))
    }
}

/// Waits `initial + step · (n−1)`, jittered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Linear {
    initial: Duration,
    step: Duration,
    max_delay: Option<Duration>,
    limits: Limits,
}

impl Linear {
    /// Starts at `initial` and adds `step` each time.
    #[must_use]
    pub const fn new(initial: Duration, step: Duration) -> Self {
        Self { initial, step, max_delay: None, limits: Limits::NONE }
    }

    /// The longest delay.
    #[must_use]
    pub const fn max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = Some(delay);
        self
    }
}

with_limits!(Linear);

impl RetryStrategy for Linear {
    fn next_delay(&self, failed: &FailedAttempt<'_>) -> Option<Duration> {
        let steps = failed.attempts.saturating_sub(1) as f64;
        let seconds = self.initial.as_secs_f64() + self.step.as_secs_f64() * steps;
        self.limits.apply(seconds, self.max_delay, failed)
    }

    fn check(&self) -> Result<(), String> {
        positive("initial", self.initial)?;
        self.max_delay.map_or(Ok(()), |delay| positive("max_delay", delay))?;
        self.limits.check(self.initial.min(self.max_delay.unwrap_or(Duration::MAX)))
    }
}

/// Waits the same delay every time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Constant {
    delay: Duration,
    limits: Limits,
}

impl Constant {
    /// Waits `delay` before every run.
    #[must_use]
    pub const fn new(delay: Duration) -> Self {
        Self { delay, limits: Limits::NONE }
    }
}

with_limits!(Constant);

impl RetryStrategy for Constant {
    fn next_delay(&self, failed: &FailedAttempt<'_>) -> Option<Duration> {
        self.limits.apply(self.delay.as_secs_f64(), None, failed)
    }

    fn check(&self) -> Result<(), String> {
        positive("delay", self.delay)?;
        self.limits.check(self.delay)
    }
}

/// Waits the listed delays, one after the other. The run after the last delay is the last try.
/// Unlike the other strategies, it cannot stand in a `const`.
#[derive(Debug, Clone, PartialEq)]
pub struct Delays {
    delays: Vec<Duration>,
    limits: Limits,
}

impl Delays {
    /// Waits each of `delays` once.
    #[must_use]
    pub fn new(delays: impl IntoIterator<Item = Duration>) -> Self {
        Self { delays: delays.into_iter().collect(), limits: Limits::NONE }
    }
}

with_limits!(Delays);

impl RetryStrategy for Delays {
    fn next_delay(&self, failed: &FailedAttempt<'_>) -> Option<Duration> {
        let index = usize::try_from(failed.attempts.saturating_sub(1)).ok()?;
        self.limits.apply(self.delays.get(index)?.as_secs_f64(), None, failed)
    }

    fn check(&self) -> Result<(), String> {
        let Some(&first) = self.delays.first() else {
            return Err("`Delays` lists no delay; use `NoRetry` for no retry at all".into());
        };
        self.limits.check(first)
    }
}

/// The databases count microseconds, so less than one is no delay.
fn positive(name: &str, value: Duration) -> Result<(), String> {
    if value < Duration::from_micros(1) {
        return Err(format!("`{name}` is below 1 µs; a retry needs a delay"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn delay(strategy: &dyn RetryStrategy, attempts: u64) -> Option<Duration> {
        strategy.next_delay(&FailedAttempt::new(attempts, Duration::ZERO, None))
    }

    #[test]
    fn delays_grow_as_documented() {
        let second = Duration::from_secs(1);
        let growing = Exponential::new(second).max_delay(5 * second);
        let seen: Vec<_> = (1..=4).filter_map(|n| delay(&growing, n)).collect();
        assert_eq!(seen, [second, 2 * second, 4 * second, 5 * second]);
        assert_eq!(delay(&Linear::new(second, 3 * second), 3), Some(7 * second));
        assert_eq!(delay(&Constant::new(second), 99), Some(second));
        let listed = Delays::new([second, 9 * second]);
        assert_eq!((delay(&listed, 2), delay(&listed, 3)), (Some(9 * second), None));
        assert_eq!(delay(&NoRetry, 1), None);
    }

    #[test]
    fn a_strategy_that_is_pointed_to_is_asked_itself() {
        let wrong = Exponential::new(Duration::ZERO);
        let chosen: [Box<dyn RetryStrategy>; 2] = [Box::new(wrong), Box::new(Arc::new(wrong))];
        for one in &chosen {
            assert!(RetryStrategy::check(one).is_err());
        }
        let listed: Box<dyn RetryStrategy> = Box::new(Delays::new([Duration::from_secs(9)]));
        assert_eq!((delay(&listed, 1), delay(&listed, 2)), (Some(Duration::from_secs(9)), None));
    }

    #[test]
    fn who_says_nothing_has_ten_attempts_and_waits_five_minutes_at_most() {
        let strategy = Exponential { initial: Duration::from_secs(3600), ..Exponential::default() };
        let seen: Vec<_> = (1..20).map_while(|n| delay(&strategy, n)).collect();
        assert_eq!(seen.len(), 9);
        assert!(seen.iter().all(|delay| *delay == Duration::from_secs(300)), "{seen:?}");
    }

    #[test]
    fn max_attempts_gives_exactly_that_many_runs() {
        let strategy = Constant::new(Duration::from_secs(1)).max_attempts(3);
        let runs = 1 + (1..100).take_while(|&n| delay(&strategy, n).is_some()).count();
        assert_eq!(runs, 3);
    }

    #[test]
    fn max_total_delay_counts_the_delay_it_is_about_to_give() {
        let strategy =
            Constant::new(Duration::from_secs(10)).max_total_delay(Duration::from_secs(15));
        let at =
            |secs| strategy.next_delay(&FailedAttempt::new(2, Duration::from_secs(secs), None));
        assert!(at(5).is_some());
        assert!(at(6).is_none());
    }

    #[test]
    fn jitter_takes_no_run_away_and_passes_no_total_delay() {
        let minute = Duration::from_secs(60);
        let strategy = Constant::new(minute).jitter(0.2).max_total_delay(minute);
        let delays: Vec<_> = (0..100).map(|_| delay(&strategy, 1).unwrap()).collect();
        assert!(delays.iter().all(|it| *it <= minute) && delays.iter().any(|it| *it < minute));
    }

    #[test]
    fn no_attempt_number_overflows() {
        for attempts in [0, 1, 1024, 1025, u64::MAX] {
            for multiplier in [0.5, 2.0, 1e300] {
                let delay = delay(
                    &Exponential::new(Duration::from_secs(1)).multiplier(multiplier),
                    attempts,
                );
                assert!(delay.is_some_and(|d| d <= Duration::from_secs(10 * 365 * 24 * 3600)));
            }
        }
    }

    #[test]
    fn jitter_spreads_by_half_each_way_and_never_passes_the_ceiling() {
        let second = Duration::from_secs(1);
        let strategy = Exponential::new(second).jitter(1.0).max_delay(Duration::from_millis(1200));
        let seen: Vec<_> = (0..2000).filter_map(|_| delay(&strategy, 1)).collect();
        assert!(
            seen.iter()
                .all(|d| (Duration::from_millis(500)..=Duration::from_millis(1200)).contains(d))
        );
        assert!(seen.iter().any(|d| *d < Duration::from_millis(600)));
        assert!(seen.contains(&Duration::from_millis(1200)));
    }

    #[test]
    fn settings_that_make_no_sense_are_named() {
        let second = Duration::from_secs(1);
        for (strategy, word) in [
            (&Exponential::new(second).jitter(2.5) as &dyn RetryStrategy, "jitter"),
            (&Exponential::new(second).multiplier(f64::NAN), "multiplier"),
            (&Exponential::new(second).multiplier(0.99), "multiplier"),
            (&Exponential::new(second).multiplier(-2.0), "multiplier"),
            (&Exponential::new(Duration::ZERO), "initial"),
            (&Exponential::new(second).max_delay(Duration::ZERO), "max_delay"),
            (&Linear::new(Duration::ZERO, second), "initial"),
            (&Linear::new(second, second).max_delay(Duration::ZERO), "max_delay"),
            (&Constant::new(Duration::from_nanos(999)), "delay"),
            (&Constant::new(second).max_attempts(0), "max_attempts"),
            (&Delays::new([]), "Delays"),
            (&Constant::new(second).max_total_delay(second / 2), "max_total_delay"),
            (&Linear::new(second, second).max_total_delay(second / 2), "max_total_delay"),
            (&Exponential::new(second).max_total_delay(second / 2), "max_total_delay"),
            (&Delays::new([second]).max_total_delay(second / 2), "max_total_delay"),
        ] {
            assert!(strategy.check().unwrap_err().contains(word));
        }
        let capped = Exponential::new(2 * second).max_delay(second).max_total_delay(second);
        assert_eq!(capped.check(), Ok(()));
        assert_eq!(Exponential::new(second).multiplier(1.0).check(), Ok(()));
    }
}
