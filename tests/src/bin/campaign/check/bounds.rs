//! What a worker may take of the machine.

use super::Verdict;
use crate::history::History;

/// Five of the engine and one while handlers block it, four of the user's own pool.
const CONNECTIONS: usize = 10;
/// In KiB.
const MEMORY: u64 = 100 << 10;

pub(super) fn a_worker_stays_small(history: &History) -> Verdict {
    let promise =
        "a worker has ten connections and 100 MiB at most, its own pool's four among them";
    let mut verdict = Verdict::of("Z3", promise);
    for (app, size) in &history.sizes {
        let small = size.connections <= CONNECTIONS && size.memory <= MEMORY;
        verdict.test(small, || format!("{app}: {size:?}"));
    }
    verdict
}
