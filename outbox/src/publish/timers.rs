//! The timers of one statement: none is in it twice, and all come in one order.

use std::collections::HashSet;
use std::hash::Hash;

/// Divides a batch so that no timer name is in a part twice: one statement cannot
/// write a row twice. Items that name the same timer keep their order.
pub(crate) fn apart<T, N: Hash + Eq>(batch: Vec<T>, timers: impl Fn(&T) -> Vec<N>) -> Vec<Vec<T>> {
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

/// Sorts the timers by queue and name. They only change places among themselves: the ids of the
/// other messages grow in the order given. A statement locks the rows of live timers, and the
/// names of new ones, one after the other. Two statements that have some timers in common, each in
/// an order of its own, would wait for each other.
#[cfg(any(feature = "postgres", test))]
pub(crate) fn in_lock_order<'a, T: Copy>(
    messages: &mut [T],
    named: impl Fn(&T) -> (&'a str, Option<&'a str>),
) {
    let is_timer = |&at: &usize| named(&messages[at]).1.is_some();
    let places: Vec<_> = (0..messages.len()).filter(is_timer).collect();
    let mut timers: Vec<_> = places.iter().map(|&at| messages[at]).collect();
    timers.sort_by_key(&named);
    places.into_iter().zip(timers).for_each(|(at, one)| messages[at] = one);
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn timers_change_places_among_themselves_alone() {
        let queues = ["b", "", "a", "a", "", "a"].map(String::from);
        let names = [Some("1"), None, Some("2"), Some("10"), None, Some("2")];
        let mut order: Vec<usize> = (0..queues.len()).collect();
        in_lock_order(&mut order, |&at| (&queues[at], names[at]));
        assert_eq!(order, [3, 1, 2, 5, 4, 0]);
    }
}
