//! Named timers.

use std::collections::HashMap;

use super::Verdict;
use crate::history::{History, Op};

pub(super) fn a_timer_is_there_once(history: &History) -> Verdict {
    let mut verdict = Verdict::of("T3", "at most one live row of a queue has a timer name");
    let mut live: HashMap<(&str, &str), i64> = HashMap::new();
    for change in &history.changes {
        let Some(timer) = &change.timer else { continue };
        let name = (&*change.queue, timer.as_str());
        match change.op {
            Op::Insert => {
                let other = live.insert(name, change.id);
                verdict.test(other.is_none(), || format!("{timer}: {} and {other:?}", change.id));
            }
            Op::Delete => drop(live.remove(&name)),
            Op::Update | Op::Letter => {}
        }
    }
    verdict
}

pub(super) fn a_cancelled_timer_never_starts(history: &History) -> Verdict {
    let promise = "a timer whose cancelling committed was free, and never starts";
    let mut verdict = Verdict::of("T4", promise);
    let mut starts: HashMap<i64, i64> = HashMap::new();
    for run in history.runs.values() {
        let last = starts.entry(run.id).or_default();
        *last = run.begun.max(*last);
    }
    let mut cancelled: HashMap<&str, (usize, usize)> = HashMap::new();
    for name in &history.cancelled {
        cancelled.entry(name).or_default().0 += 1;
    }
    let deletes = history.changes.iter().filter(|change| change.op == Op::Delete);
    for delete in deletes.filter(|change| change.old.token.is_none()) {
        let name = delete.timer.as_deref().unwrap_or_default();
        let known = cancelled.get_mut(name).is_some_and(|(told, deleted)| {
            *deleted += 1;
            deleted <= told
        });
        let started = starts.get(&delete.id).is_some_and(|last| *last > delete.at);
        verdict.test(known && !started, || {
            format!("row {} ({name}): cancelled {known}, started after {started}", delete.id)
        });
    }
    for (name, (told, deleted)) in cancelled {
        verdict.test(told == deleted, || {
            format!("{name}: {told} times told as cancelled, and {deleted} rows gone")
        });
    }
    verdict
}
