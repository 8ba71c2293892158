//! Acks that set timers: which of them are tried now.

use std::collections::HashSet;

use super::later::Later;
use super::settling::Settling;

/// Without those that set a timer which keeps another one waiting: they go behind it, instead
/// of being tried for as long themselves.
pub(super) fn behind_others(mut group: Vec<Settling>, later: &mut Later) -> Vec<Settling> {
    if later.is_empty() || !group.iter().any(Settling::sets_timers) {
        return group;
    }
    let mut waiting: HashSet<_> = later.waiting().iter().flat_map(Settling::timers).collect();
    let waits = |one: &mut Settling| {
        let timers = one.timers();
        let waits = timers.iter().any(|name| waiting.contains(name));
        waiting.extend(timers.into_iter().filter(|_| waits));
        waits
    };
    later.add(group.extract_if(.., waits).collect());
    group
}
