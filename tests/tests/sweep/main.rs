//! Faults at every point of every flow, one after the other: what random faults meet
//! once in a thousand runs is met here each time.

mod futures;
mod postgres;
mod sqlite;

use std::time::Duration;

/// Longer than any test.
const LEASE: Duration = Duration::from_secs(600);

/// Each flow fails if it has fewer messages, calls or polls than its floor, and so do all of
/// them if somebody lowers these.
#[test]
fn the_sweep_has_as_many_cases_as_it_had() {
    let [messages, writes, polls] = [postgres::floor(), sqlite::floor(), futures::floor()];
    println!("{messages} faults of messages, {writes} of files, {polls} dropped calls at least");
    assert!(messages >= 1458 && writes >= 1850 && polls >= 773, "{messages} {writes} {polls}");
    let thousands = |n: usize| format!("{},{:03}", n / 1000, n % 1000);
    let told = format!("{} and {} faults in all", thousands(messages), thousands(writes));
    let page = include_str!("../../../docs/guarantees.md");
    assert!(page.contains(&told), "docs/guarantees.md says another sum than {told}");
}
