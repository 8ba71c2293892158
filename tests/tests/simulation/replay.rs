//! A seed does the same each time: alone, after others, and in another process.

use std::process::Command;

use crate::{seeds, trace, workload};

/// Takes the other process here.
const SEED: &str = "OUTBOX_REPLAYED_SEED";

fn traced(seed: u64) -> String {
    trace::text(&workload::run(seed).journal)
}

#[test]
fn a_seed_does_the_same_alone_and_after_others() {
    seeds::quiet();
    let first: Vec<_> = (0..100).map(traced).collect();
    let again: Vec<_> = (0..100).rev().map(traced).collect();
    for (seed, (first, again)) in first.iter().zip(again.iter().rev()).enumerate() {
        let differ = first.lines().zip(again.lines()).find(|(one, other)| one != other);
        assert!(first == again, "seed {seed} is first different at {differ:?}");
    }
    let different: std::collections::HashSet<_> = first.iter().collect();
    assert_eq!(different.len(), first.len(), "each seed is another run");
}

#[test]
fn a_seed_does_the_same_in_another_process() {
    seeds::quiet();
    if let Ok(seed) = std::env::var(SEED) {
        println!("trace {:016x}", trace::hash(&traced(seed.parse().unwrap())));
        return;
    }
    for seed in [0, 7, 4711] {
        let other = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "replay::a_seed_does_the_same_in_another_process", "--nocapture"])
            .env(SEED, seed.to_string())
            .output()
            .unwrap();
        let said = String::from_utf8(other.stdout).unwrap();
        let here = format!("trace {:016x}", trace::hash(&traced(seed)));
        assert!(said.contains(&here), "seed {seed} is {here} here, and there: {said}");
    }
}
