//! Acks that set timers: which of them one statement can write, and which are tried now.

use std::collections::HashSet;
use std::hash::Hash;

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

/// Divides a batch so that no timer name stands twice in a part: one statement
/// cannot write a row twice. What names the same timer stays in its order.
pub(super) fn apart<T, N: Hash + Eq>(batch: Vec<T>, timers: impl Fn(&T) -> Vec<N>) -> Vec<Vec<T>> {
    let mut parts: Vec<(HashSet<N>, Vec<T>)> = Vec::new();
    for one in batch {
        let timers = timers(&one);
        // Behind the last part that has one of them.
        let clash = |(taken, _): &(HashSet<N>, _)| timers.iter().any(|name| taken.contains(name));
        let at = parts.iter().rposition(clash).map_or(0, |last| last + 1);
        if at == parts.len() {
            parts.push((HashSet::new(), Vec::new()));
        }
        parts[at].0.extend(timers);
        parts[at].1.push(one);
    }
    parts.into_iter().map(|(_, part)| part).collect()
}

#[cfg(test)]
mod tests {
    use super::apart;

    #[test]
    fn a_timer_stands_once_in_a_part_and_keeps_its_order() {
        let parts = |batch: &[&'static str]| {
            let batch = batch.iter().enumerate().map(|(n, timers)| (n, *timers)).collect();
            let parts = apart(batch, |(_, timers): &(usize, &str)| timers.chars().collect());
            let ids = |part: Vec<(usize, _)>| part.into_iter().map(|(n, _)| n).collect();
            parts.into_iter().map(ids).collect::<Vec<Vec<usize>>>()
        };
        assert!(parts(&[]).is_empty());
        assert_eq!(parts(&["", "a", "b", "", "c"]), [[0, 1, 2, 3, 4]]);
        assert_eq!(parts(&["a", "a", "b", "a"]), [vec![0, 2], vec![1], vec![3]]);
        assert_eq!(parts(&["a", "ab", "b", "c"]), [vec![0, 3], vec![1], vec![2]]);
    }
}
