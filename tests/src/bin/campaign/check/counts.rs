//! Deliveries and attempts.

use super::Verdict;
use crate::history::{History, Op};
use crate::lease::Act;
use crate::workload::MAX_ATTEMPTS;

pub(super) fn counts_go_up_by_one(history: &History) -> Verdict {
    let promise = "a claim is one delivery, a retry one attempt; a release may take one back";
    let mut verdict = Verdict::of("C1", promise);
    for change in history.changes.iter().filter(|change| change.op == Op::Update) {
        let deliveries = change.new.deliveries - change.old.deliveries;
        let attempts = change.new.attempts - change.old.attempts;
        let holds = match change.act() {
            Act::Claim => (deliveries, attempts) == (1, 0),
            Act::Retry => (deliveries, attempts) == (0, 1),
            // Of a suspect so many that it is none any more: given back, it would be judged
            // without a run.
            Act::Release if &*change.queue == "crash" => deliveries <= 0 && attempts == 0,
            Act::Release => matches!((deliveries, attempts), (0 | -1, 0)),
            _ => (deliveries, attempts) == (0, 0),
        };
        verdict.test(holds, || {
            let (id, act) = (change.id, change.act());
            format!("row {id}: {act:?} by {} counted {deliveries} and {attempts}", change.app)
        });
    }
    verdict
}

pub(super) fn attempts_are_as_many_as_allowed(history: &History) -> Verdict {
    let mut verdict = Verdict::of("C2", "a row that always fails has exactly `max_attempts` runs");
    for (at, change) in history.changes.iter().enumerate() {
        if change.op != Op::Letter || change.reason.as_deref() != Some("retry_terminal") {
            continue;
        }
        let near = at.saturating_sub(5_000)..(at + 5_000).min(history.changes.len());
        let delete = history.changes[near]
            .iter()
            .find(|other| other.op == Op::Delete && other.id == change.id);
        let failed = delete.map(|delete| delete.old.attempts + 1);
        verdict.test(failed == Some(MAX_ATTEMPTS), || {
            format!("row {} is a letter after {failed:?} runs", change.id)
        });
    }
    verdict
}
