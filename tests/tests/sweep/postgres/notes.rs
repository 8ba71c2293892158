//! What handlers did, by their own account.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::Context;
use tokio::time::Instant;

/// From the last look at the clock to the handler's first line, on a machine that has
/// other things to do. Little more than half of what a frozen message is late by.
const STARTING: Duration = Duration::from_millis(500);

/// Runs so far.
#[derive(Clone, Default)]
pub struct Notes(Arc<Mutex<Vec<Run>>>);

struct Run {
    id: i64,
    n: i64,
    claims: u64,
    /// Tells the claims of a row apart, also where one gave its delivery back.
    fence: i64,
    late: bool,
    succeeded: bool,
}

impl Notes {
    /// How often it has run by now, this time included.
    pub fn starts(&self, context: &Context, n: i64) -> usize {
        let late = Instant::now() >= context.lease_deadline() + STARTING;
        let (id, claims, fence) = (context.id(), context.deliveries(), context.fence());
        self.0.lock().unwrap().push(Run { id, n, claims, fence, late, succeeded: false });
        self.runs_of(n)
    }

    pub fn succeeds(&self, context: &Context) {
        let mut runs = self.0.lock().unwrap();
        let mut mine = runs.iter_mut().rev().filter(|run| run.id == context.id());
        mine.next().unwrap().succeeded = true;
    }

    pub fn runs_of(&self, n: i64) -> usize {
        self.0.lock().unwrap().iter().filter(|run| run.n == n).count()
    }

    /// Those that must not have been. `deleted`: rows that were acked, and the claim that
    /// did so.
    pub fn violations(&self, deleted: &[(i64, i64)]) -> Vec<String> {
        let runs = self.0.lock().unwrap();
        let mut wrong = Vec::new();
        for (id, claims) in deleted {
            let is_it = |run: &Run| run.id == *id && i64::try_from(run.claims) == Ok(*claims);
            if !runs.iter().any(|run| is_it(run) && run.succeeded) {
                wrong.push(format!("D1: row {id} was acked and no handler had succeeded"));
            }
        }
        let mut seen = HashSet::new();
        for run in &*runs {
            if run.late {
                wrong.push(format!("H3: a handler of row {} began after its lease", run.id));
            }
            if !seen.insert((run.id, run.fence)) {
                wrong.push(format!("H1: one claim of row {} had two runs", run.id));
            }
        }
        wrong
    }
}
