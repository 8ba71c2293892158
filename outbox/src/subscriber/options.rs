//! How a subscriber claims, runs and gives up: its options and their defaults.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::retry::{Exponential, FailedAttempt, RetryStrategy};

/// When and how a handler's result becomes the final word on its delivery.
///
/// Under `NackOnError` and `RejectOnError` a handler may also say
/// [`nack`](crate::Context::nack), [`reject`](crate::Context::reject) or
/// [`snooze`](crate::Context::snooze) on its [`Context`](crate::Context). That counts unless the
/// run ends in an error. The result of the run is what its layers have made of the handler's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AckPolicy {
    /// An error asks the retry strategy.
    #[default]
    NackOnError,
    /// An error is terminal: `rejected`. The exception is an error that says otherwise
    /// ([`Failure`](crate::Failure)).
    RejectOnError,
    /// The row is deleted before the handler runs: at most once, no retry.
    AckFirst,
    /// The handler says [`ack`], [`nack`], [`reject`] or [`snooze`] on its [`Context`], or returns
    /// an [`Outcome`](crate::Outcome).
    ///
    /// Without such a word an error is a nack, and everything else is a reject: `()` is no word,
    /// and a message to `publish` is none either. The first word counts, even over a later error,
    /// panic or timeout, or when a drain drops the handler. The exception is an ack of a handler
    /// that has taken [`Tx`](crate::Tx): it does not count over any of these.
    ///
    /// [`ack`]: crate::Context::ack
    /// [`nack`]: crate::Context::nack
    /// [`reject`]: crate::Context::reject
    /// [`snooze`]: crate::Context::snooze
    /// [`Context`]: crate::Context
    Manual,
}

/// Each worker is a task that runs from the start.
pub(crate) const MAX_WORKERS: usize = 10_000;
const MAX_BATCH: usize = 100_000;

/// A claim would use up most of a shorter lease, and its rows would come back unstarted.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);
const MILLISECOND: Duration = Duration::from_millis(1);

/// The longest delay or time. With a longer one, sums with a point in time would overflow, here
/// or in a database.
pub(crate) const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

#[derive(Clone)]
pub(crate) struct Options {
    pub(crate) retry: Arc<dyn RetryStrategy>,
    pub(crate) max_deliveries: Option<u64>,
    pub(crate) max_workers: usize,
    pub(crate) fetch_batch: usize,
    pub(crate) lease_ttl: Duration,
    pub(crate) min_poll: Duration,
    pub(crate) max_poll: Duration,
    pub(crate) timeout: Option<Duration>,
    pub(crate) ack: AckPolicy,
    pub(crate) batch: Batching,
}

/// How many messages go to one run of the handler.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batching {
    pub(crate) size: usize,
    /// How long a run that could begin waits for more messages.
    pub(crate) wait: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            retry: Arc::new(Exponential::default()),
            max_deliveries: None,
            max_workers: 10,
            fetch_batch: 4000,
            lease_ttl: Duration::from_secs(60),
            min_poll: Duration::from_secs(1),
            max_poll: Duration::from_secs(20),
            timeout: None,
            ack: AckPolicy::NackOnError,
            batch: Batching { size: 1, wait: Duration::ZERO },
        }
    }
}

impl Options {
    /// Everything that is wrong with the settings, as a sentence each.
    pub(crate) fn check(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, zero) in [
            ("max_workers", self.max_workers == 0),
            ("fetch_batch", self.fetch_batch == 0),
            ("batch", self.batch.size == 0),
            ("max_deliveries", self.max_deliveries == Some(0)),
        ] {
            if zero {
                wrong.push(format!("`{name}` is 0; it must be at least 1"));
            }
        }
        if self.max_workers > MAX_WORKERS {
            wrong.push(format!(
                "`max_workers` is {}; it must be at most {MAX_WORKERS}: each is a task of its own, \
                 from the start",
                self.max_workers
            ));
        }
        if self.batch.size > MAX_BATCH {
            wrong.push(format!(
                "`batch` is {}; it must be at most {MAX_BATCH}: a run holds all of its messages",
                self.batch.size
            ));
        }
        for (name, value, least) in [
            ("lease_ttl", Some(self.lease_ttl), SHORTEST_LEASE),
            ("min_poll", Some(self.min_poll), MILLISECOND),
            ("max_poll", Some(self.max_poll), MILLISECOND),
            ("timeout", self.timeout, MILLISECOND),
        ] {
            if value.is_some_and(|value| value < least) {
                wrong.push(format!("`{name}` is below {least:?}"));
            }
            if value.is_some_and(|value| value > LONGEST) {
                wrong.push(format!("`{name}` is above 10 years"));
            }
        }
        if self.min_poll > self.max_poll {
            wrong.push(format!(
                "`min_poll` ({:?}) is above `max_poll` ({:?})",
                self.min_poll, self.max_poll
            ));
        }
        // Nothing starts on the last third of a lease, and a row may have waited before.
        if self.batch.wait > self.lease_ttl / 2 {
            wrong.push(format!(
                "`batch_wait` ({:?}) is above half of `lease_ttl` ({:?}): its messages would \
                 be given back unstarted",
                self.batch.wait, self.lease_ttl
            ));
        }
        if let Err(reason) = self.retry.check() {
            wrong.push(format!("`retry`: {reason}"));
        }
        wrong
    }

    /// Whether the strategy goes on when a message has failed as often as it may be delivered: its
    /// dead letter would not have the error.
    pub(crate) fn retries_outlast_deliveries(&self) -> bool {
        // After so long a strategy that has a limit of time has reached it.
        let failed = |max| FailedAttempt::new(max, LONGEST, None);
        let goes_on = |max| {
            let asked = AssertUnwindSafe(|| self.retry.next_delay(&failed(max)).is_some());
            catch_unwind(asked).unwrap_or_default()
        };
        let asks = matches!(self.ack, AckPolicy::NackOnError | AckPolicy::Manual);
        asks && self.max_deliveries.is_some_and(goes_on)
    }

    /// True if some failure can end a message for good.
    pub(crate) fn can_fail_terminally(&self) -> bool {
        self.ack != AckPolicy::AckFirst
    }
}
