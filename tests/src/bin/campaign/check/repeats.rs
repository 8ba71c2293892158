//! Messages that were run more than once, and why.

use std::collections::HashMap;

use super::Verdict;
use crate::history::History;
use crate::lease::{Act, End, Lease, claimed_at};

/// Why a row that had been run was there to be run again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// Its holder put it back.
    PutBack,
    /// Its lease was over, while its holder lived.
    Lost,
    /// Its holder had ended: it was in flight.
    InFlight,
}

/// When each process ended.
fn ends(history: &History) -> HashMap<&str, i64> {
    history.exits.iter().map(|exit| (exit.app.as_str(), exit.at)).collect()
}

fn reason(history: &History, ends: &HashMap<&str, i64>, lease: &Lease) -> Option<Reason> {
    // Rows that wait in memory have not been started, and nothing of them is repeated.
    let run = lease.run.as_ref()?;
    match lease.end {
        End::Written(at) => {
            let back = matches!(history.changes[at].act(), Act::Retry | Act::Release);
            back.then_some(Reason::PutBack)
        }
        End::Reclaimed(at) => {
            let ended = ends.get(&*run.app).is_some_and(|end| *end <= history.changes[at].at);
            Some(if ended { Reason::InFlight } else { Reason::Lost })
        }
        End::Open => None,
    }
}

/// By two records: starts are those that handlers wrote down, reasons those of the audit.
pub(super) fn the_end_of_a_process_repeats_what_it_had_in_flight(history: &History) -> Verdict {
    let promise = "the end of a process repeats what it had in flight, once, and nothing else";
    let mut verdict = Verdict::of("H6", promise);
    let ends = ends(history);
    let mut reasons: HashMap<i64, Vec<Reason>> = HashMap::new();
    let mut claims: HashMap<i64, Vec<i64>> = HashMap::new();
    for lease in &history.leases {
        reasons.entry(lease.id).or_default().extend(reason(history, &ends, lease));
        if let Some(run) = &lease.run {
            claims.entry(lease.id).or_default().push(run.fence);
        }
    }
    let mut starts: HashMap<i64, usize> = HashMap::new();
    for (&(id, fence), run) in &history.runs {
        // A crash of the server may undo a claim; then there is no audit of it.
        let known = claims.get(&id).is_some_and(|fences| fences.contains(&fence));
        if known || !history.may_be_undone(claimed_at(fence)) {
            *starts.entry(id).or_default() += run.starts;
        }
    }
    for (id, starts) in starts.into_iter().filter(|(_, starts)| *starts > 1) {
        let reasons = reasons.get(&id).map(Vec::as_slice).unwrap_or_default();
        let in_flight = reasons.iter().filter(|reason| **reason == Reason::InFlight).count();
        let others = reasons.len() - in_flight;
        let repeats = (starts - 1).saturating_sub(others);
        verdict.test(repeats <= in_flight, || {
            format!("row {id}: {starts} starts, put back or lost {others} times, {in_flight} times in flight")
        });
    }
    verdict
}

/// Rows that were in flight at the end of their process, and those of them that were run
/// again.
pub fn after_ends(history: &History) -> [usize; 2] {
    let ends = ends(history);
    let mut next: HashMap<i64, bool> = HashMap::new();
    let [mut in_flight, mut repeated] = [0, 0];
    for lease in history.leases.iter().rev() {
        let runs_again = next.insert(lease.id, lease.run.is_some()).unwrap_or_default();
        if reason(history, &ends, lease) == Some(Reason::InFlight) {
            in_flight += 1;
            repeated += usize::from(runs_again);
        }
    }
    [in_flight, repeated]
}
