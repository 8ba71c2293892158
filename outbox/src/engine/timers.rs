//! Acks that set timers: which of them are tried now. An ack waits behind another that waits for
//! the same timer.

use std::collections::HashMap;

use super::later::Later;
use super::settling::{Settling, Waits};

/// The timers for which acks wait in `later`.
#[derive(Default)]
pub(super) struct Held {
    /// By queue and name.
    timers: HashMap<(String, String), Waits>,
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
        let names = |one: &Settling| {
            let waits = one.waits;
            one.timers().into_iter().map(move |name| (name, waits))
        };
        held.extend(later.waiting()[*seen..].iter().flat_map(names));
        let waits = |one: &mut Settling| {
            let behind = one.timers().iter().filter_map(|name| held.get(name)).max().copied();
            if behind.is_some_and(|waits| waits != Waits::Not) {
                one.waits = Waits::Long;
            }
            held.extend(names(one).filter(|_| behind.is_some()));
            behind.is_some()
        };
        later.add(group.extract_if(.., waits).collect());
        *seen = later.waiting().len();
        group
    }
}
