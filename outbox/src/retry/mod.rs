//! When a failed message is tried again. The history of the message decides, and nothing else
//! but the jitter.

mod limits;
mod strategies;

use std::sync::Arc;
use std::time::Duration;

pub use strategies::{Constant, Delays, Exponential, Linear, NoRetry};

use crate::subscriber::HandlerError;

/// Decides whether, and when, a message whose handler failed is tried again.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use outbox::retry::{FailedAttempt, RetryStrategy};
///
/// /// Three quick tries, then one an hour later.
/// struct QuickThenPatient;
///
/// impl RetryStrategy for QuickThenPatient {
///     fn next_delay(&self, failed: &FailedAttempt<'_>) -> Option<Duration> {
///         match failed.attempts {
///             1..=3 => Some(Duration::from_secs(1)),
///             4 => Some(Duration::from_secs(3600)),
///             _ => None,
///         }
///     }
/// }
/// ```
pub trait RetryStrategy: Send + Sync + 'static {
    /// Returns the delay until the next run, which counts from when the failure is
    /// settled. `None` ends the message as `retry_terminal`, and so does a panic. A start asks
    /// once whether it goes on after `max_deliveries`, to warn of that.
    fn next_delay(&self, failed: &FailedAttempt<'_>) -> Option<Duration>;

    /// Checks the strategy's own settings. Called once, before the app starts.
    ///
    /// # Errors
    /// A sentence for the person who wrote the settings.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

macro_rules! pointed_to {
    ($($pointer:ident)+) => {$(
        /// For a strategy that is chosen when the program starts.
        impl<S: RetryStrategy + ?Sized> RetryStrategy for $pointer<S> {
            fn next_delay(&self, failed: &FailedAttempt<'_>) -> Option<Duration> {
                (**self).next_delay(failed)
            }

            fn check(&self) -> Result<(), String> {
                (**self).check()
            }
        }
    )+};
}

pointed_to! { Box Arc }

/// What a strategy may look at.
#[derive(Debug)]
#[non_exhaustive]
pub struct FailedAttempt<'a> {
    /// Failed runs, including this one: 1 for the first failure.
    pub attempts: u64,
    /// Time since the first failure, by the database's clock: zero for the first.
    pub elapsed: Duration,
    /// The error. `None` for a plain `Outcome::Nack`.
    pub error: Option<&'a HandlerError>,
}

impl<'a> FailedAttempt<'a> {
    /// For tests of your own strategies.
    #[must_use]
    pub fn new(attempts: u64, elapsed: Duration, error: Option<&'a HandlerError>) -> Self {
        Self { attempts, elapsed, error }
    }
}
