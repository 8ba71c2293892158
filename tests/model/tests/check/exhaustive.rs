//! Every state of every scenario.

use std::time::Instant;

use outbox_model::Scenario;
use stateright::{Checker, Model};

use crate::checked::{CONDEMNED, Checked, POISON, TIMERS, WORKERS};

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
    assert!(states >= 4_000_000, "{states} states");
}

#[test]
fn timers_keep_every_promise_in_all_states() {
    let states = all("timers", TIMERS);
    assert!(states >= 2_000_000, "{states} states");
}

#[test]
fn rows_that_are_delivered_too_often_keep_every_promise_in_all_states() {
    let states = all("poison", POISON);
    assert!(states >= 2_000_000, "{states} states");
}

#[test]
fn a_row_that_runs_alone_from_the_first_keeps_every_promise_in_all_states() {
    let states = all("condemned", CONDEMNED);
    assert!(states >= 1_000, "{states} states");
}
