//! Acks that set timers: which of them are tried now. An ack waits behind another that waits for
//! the same timer. One that waits for something else holds up no other.

use std::collections::HashSet;

use super::later::Later;
use super::settling::{Settling, Waits};

/// The timers for which acks wait in `later`.
#[derive(Default)]
pub(super) struct Held {
    /// By queue and name.
    timers: HashSet<(String, String)>,
    /// How many of the waiting acks they come from.
    seen: usize,
}

impl Held {
    /// The group without the acks that set one of these timers. Those go behind the waiting ones,
    /// instead of being tried for as long themselves.
    pub(super) fn behind(&mut self, mut group: Vec<Settling>, later: &mut Later) -> Vec<Settling> {
        if later.is_empty() || !group.iter().any(Settling::sets_timers) {
            return group;
        }
        let Self { timers: held, seen } = self;
        let waiting = later.waiting()[*seen..].iter().filter(|one| one.waits != Waits::Not);
        held.extend(waiting.flat_map(Settling::timers));
        let waits = |one: &mut Settling| {
            let timers = one.timers();
            let waits = timers.iter().any(|name| held.contains(name));
            if waits {
                one.waits = Waits::Long;
                held.extend(timers);
            }
            waits
        };
        later.add(group.extract_if(.., waits).collect());
        *seen = later.waiting().len();
        group
    }
}
