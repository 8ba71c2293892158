//! What a seed decides from one moment to the next.

use std::sync::Mutex;
use std::time::Duration;

use crate::unpoisoned::Locked as _;
use fastrand::Rng;
use tokio::task::yield_now;
use tokio::time::sleep;

/// The dice of a simulation. There is one generator for everything, so the order of its throws is
/// the schedule.
pub(super) struct Dice(Mutex<Rng>);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(Mutex::new(Rng::with_seed(seed)))
    }

    fn with<T>(&self, throw: impl FnOnce(&mut Rng) -> T) -> T {
        throw(&mut self.0.locked())
    }

    /// True with this probability.
    pub(super) fn hits(&self, share: f64) -> bool {
        self.with(|dice| dice.f64() < share)
    }

    /// A number below `end`.
    pub(super) fn below(&self, end: usize) -> usize {
        self.with(|dice| dice.usize(..end))
    }

    pub(super) fn share(&self, most: f64) -> f64 {
        self.with(Rng::f64) * most
    }

    /// A time up to the longest, in whole milliseconds like tokio's clock.
    pub(super) fn up_to(&self, longest: Duration) -> Duration {
        let longest = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX - 1);
        Duration::from_millis(self.with(|dice| dice.u64(..=longest)))
    }

    /// A moment in which others may go first. Mostly no time passes.
    pub(super) fn moment(&self, longest: Duration) -> Moment {
        match self.below(4) {
            0 => Moment::Turns(0),
            turns @ 1..3 => Moment::Turns(turns),
            _ => Moment::Time(self.up_to(longest)),
        }
    }
}

/// How long others go first.
#[derive(Debug, Clone, Copy)]
pub(super) enum Moment {
    Turns(usize),
    Time(Duration),
}

impl Moment {
    pub(super) async fn pass(self) {
        match self {
            Self::Turns(turns) => {
                for _ in 0..turns {
                    yield_now().await;
                }
            }
            Self::Time(time) => sleep(time).await,
        }
    }
}
