//! Every state of every scenario.

use std::time::Instant;

use outbox_model::Scenario;
use stateright::{Checker, Model};

use crate::checked::{Checked, POISON, TIMERS, WORKERS};

/// Visits all states; their number.
fn all<const K: usize, const S: usize>(name: &str, scenario: Scenario<K, S>) -> usize {
    let begun = Instant::now();
    let checker = Checked(scenario).checker().threads(2).spawn_dfs().join();
    let states = checker.unique_state_count();
    println!(
        "{name}: {states} states, {} transitions, depth {}, {:.1} s",
        checker.state_count(),
        checker.max_depth(),
        begun.elapsed().as_secs_f64()
    );
    checker.assert_properties();
    states
}

#[test]
fn two_workers_keep_every_promise_in_all_states() {
    let states = all("workers", WORKERS);
    assert!(states >= 4_000_000, "{states} states are too few to be said to be all");
}

#[test]
fn timers_keep_every_promise_in_all_states() {
    let states = all("timers", TIMERS);
    assert!(states >= 10_000, "{states}");
}

#[test]
fn rows_that_are_delivered_too_often_keep_every_promise_in_all_states() {
    let states = all("poison", POISON);
    assert!(states >= 10_000, "{states}");
}
