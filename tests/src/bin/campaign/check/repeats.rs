//! Messages that were in flight when their process ended. That they are run again, and nothing
//! else is, is no property of its own: acked unrun they break D1, buried unrun H5, gone M1, left
//! Z1; and a run too many breaks H1 or L1.

use std::collections::HashMap;

use crate::history::History;
use crate::lease::{End, Lease};

/// When each process ended.
fn ends(history: &History) -> HashMap<&str, i64> {
    history.exits.iter().map(|exit| (exit.app.as_str(), exit.at)).collect()
}

/// Whether its handler was started by a process that had ended when another claim took the row.
fn is_in_flight(history: &History, ends: &HashMap<&str, i64>, lease: &Lease) -> bool {
    // Rows that wait in memory have not been started, and nothing of them is repeated.
    let (Some(run), End::Reclaimed(at)) = (&lease.run, lease.end) else { return false };
    ends.get(&*run.app).is_some_and(|end| *end <= history.changes[at].at)
}

/// Rows that were in flight at the end of their process, and those of them that were run
/// again.
pub fn after_ends(history: &History) -> [usize; 2] {
    let ends = ends(history);
    let mut next: HashMap<i64, bool> = HashMap::new();
    let [mut in_flight, mut repeated] = [0, 0];
    for lease in history.leases.iter().rev() {
        let runs_again = next.insert(lease.id, lease.run.is_some()).unwrap_or_default();
        if is_in_flight(history, &ends, lease) {
            in_flight += 1;
            repeated += usize::from(runs_again);
        }
    }
    [in_flight, repeated]
}
