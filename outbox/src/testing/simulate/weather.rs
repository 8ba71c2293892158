//! What a seed decides once: how many processes there are, and which faults come, how often and
//! for how long. Some seeds have no fault of a kind: a fault that always comes hides what happens
//! without it.

use std::time::Duration;

use super::chance::Dice;
use crate::subscriber::{LONGEST, Subscriber};

pub(super) struct Weather {
    pub(super) processes: usize,
    /// For how long faults come.
    pub(super) storm: Duration,
    /// The longest time that a statement or its answer takes if nothing is wrong.
    pub(super) delay: Duration,
    /// The longest time that one statement, or all statements of a process, hang.
    pub(super) stall: Duration,
    pub(super) stalls: f64,
    /// The share of stalls that hold up the whole process.
    pub(super) cut_off: f64,
    pub(super) refused: f64,
    pub(super) undone: f64,
    pub(super) unanswered: f64,
    pub(super) late: f64,
    pub(super) lost_wakes: f64,
    pub(super) broken_wakes: f64,
    pub(super) broken_letters: f64,
    /// The share of statements at which the process crashes.
    pub(super) crashes: f64,
    /// The longest time that a process lives before it is stopped, if it is.
    pub(super) life: Option<Duration>,
    /// The share of stops that are drains.
    pub(super) drains: f64,
    pub(super) drain_timeout: Duration,
    /// The longest time that a process is away.
    pub(super) away: Duration,
    pub(super) wakes_only_sleepers: bool,
}

impl Weather {
    pub(super) fn of(dice: &Dice, subscribers: &[Subscriber]) -> Self {
        let lease = subscribers.iter().map(|one| one.options.lease_ttl).max();
        // One that is too long is told when a process starts.
        let lease = lease.unwrap_or(Duration::from_secs(60)).min(LONGEST);
        let seldom = |most: f64| if dice.hits(0.5) { dice.share(most) } else { 0.0 };
        let delays = [0, 1, 10, 100];
        Self {
            processes: 1 + dice.below(3),
            storm: dice.up_to(4 * lease),
            delay: Duration::from_millis(delays[dice.below(delays.len())]),
            stall: lease.mul_f64(1.5),
            stalls: seldom(0.1),
            cut_off: seldom(1.0),
            refused: seldom(0.05),
            undone: seldom(0.2),
            unanswered: seldom(0.2),
            late: seldom(0.1),
            lost_wakes: if dice.hits(0.2) { 1.0 } else { seldom(1.0) },
            broken_wakes: seldom(0.3),
            broken_letters: seldom(0.5),
            crashes: seldom(0.05),
            life: dice.hits(0.5).then(|| Duration::from_millis(1) + dice.up_to(2 * lease)),
            drains: seldom(1.0),
            drain_timeout: dice.up_to(lease),
            away: dice.up_to(lease),
            wakes_only_sleepers: dice.hits(0.5),
        }
    }
}
