//! Every mistake is found, by the promise that it breaks, on a short way.

use outbox_model::{Mutant, Property, Rules, Scenario};
use stateright::{Checker, Model};

use crate::checked::{CONDEMNED, Checked, POISON, TIMERS, WORKERS};

/// The longest way to a mistake that a reader follows.
const STEPS: usize = 15;

/// The shortest way to a state that breaks the promise: its steps, told.
fn refuted<const K: usize, const S: usize>(
    scenario: Scenario<K, S>,
    mutant: Mutant,
) -> Option<String> {
    let rules = Rules { mutant: Some(mutant), ..scenario.rules };
    let name = format!("{:?}", mutant.breaks());
    // The checker stops a while after it has found something: it goes deeper step by step.
    let steps = (1..=STEPS).find_map(|steps| {
        let checker = Checked(Scenario { rules, ..scenario }).checker();
        // A way of so many steps has one state more, and the last one allowed is not looked at.
        let found = checker.target_max_depth(steps + 2).spawn_bfs().join();
        Some(found.discoveries().remove(&*name)?.into_actions())
    })?;
    let told: Vec<_> = steps.iter().map(|step| format!("  {step:?}")).collect();
    Some(format!("{mutant:?} breaks {name} in {} steps:\n{}", told.len(), told.join("\n")))
}

fn search(mutant: Mutant) -> Option<String> {
    let small = Scenario::<2, 2> { rules: Rules { ttl: 2, ..WORKERS.rules }, claims: 2, ..TIMERS };
    let few = || refuted(small, mutant).or_else(|| refuted(CONDEMNED, mutant));
    few().or_else(|| refuted(TIMERS, mutant)).or_else(|| refuted(POISON, mutant))
}

#[test]
fn every_mutant_is_refuted_by_the_promise_that_it_breaks() {
    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        match search(*mutant) {
            Some(told) => println!("{told}"),
            None => missed.push(*mutant),
        }
    }
    assert!(missed.is_empty(), "not refuted: {missed:?}");
}

#[test]
fn every_property_is_broken_by_a_mutant() {
    let breaks = |property: &Property| Mutant::ALL.iter().any(|it| it.breaks() == *property);
    let unbroken: Vec<_> = Property::ALL.into_iter().filter(|it| !breaks(it)).collect();
    assert!(unbroken.is_empty(), "no mutant breaks {unbroken:?}");
}

#[test]
fn as_many_mutants_are_promised() {
    let guarantees = include_str!("../../../../docs/guarantees.md");
    let told = format!("{0} of {0} mutants refuted", Mutant::ALL.len());
    assert!(guarantees.contains(&told), "{told}");
}
