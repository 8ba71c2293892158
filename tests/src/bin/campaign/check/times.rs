//! Due times and delays, by the server's clock.

use super::Verdict;
use crate::args::Store;
use crate::history::{History, Op};
use crate::lease::Act;
use crate::workload::RETRY_DELAY;

pub(super) fn nothing_is_claimed_before_it_is_due(history: &History) -> Verdict {
    let mut verdict = Verdict::of("T1", "no claim takes a row that is not due");
    for claim in history.changes.iter().filter(|change| change.act() == Act::Claim) {
        let early = claim.old.due - claim.new.leased;
        verdict.test(early <= 0, || format!("row {} was taken {early} us too early", claim.id));
    }
    verdict
}

pub(super) fn a_delay_is_never_shorter(history: &History) -> Verdict {
    let promise = "a delay counts from the call of publish, and a retry's from its settle";
    let mut verdict = Verdict::of("T2", promise);
    let retry = i64::try_from(RETRY_DELAY.as_micros()).unwrap_or(i64::MAX);
    for change in &history.changes {
        let biz = change.key.as_deref().and_then(|key| history.biz.get(key));
        let earliest = match (change.op, change.act(), biz) {
            (Op::Insert, _, Some(biz)) if biz.delay > 0 => biz.called + biz.delay,
            // A statement of SQLite has one time.
            (_, Act::Retry, _) if history.store == Store::Sqlite => change.at + retry,
            (_, Act::Retry, _) => change.stmt + retry,
            _ => continue,
        };
        let early = earliest - change.new.due;
        verdict.test(early <= 0, || format!("row {} is due {early} us too early", change.id));
    }
    verdict
}
