//! Runs of handlers, by their own words.

use std::collections::{HashMap, HashSet};

use super::Verdict;
use crate::history::{History, Op, Run};
use crate::lease::{Act, End, Lease, claimed_at, ttl};

/// How long a thread may be kept waiting between the check of a lease and the first line
/// of the handler.
const SLACK: i64 = 250_000;
/// Threads of a process that may have been stopped in between.
const THREADS: usize = 2;

pub(super) fn a_claim_starts_one_run(history: &History) -> Verdict {
    let mut verdict = Verdict::of("H1", "a handler starts once for a claim, and for none without");
    let of = |lease: &Lease| lease.run.as_ref().map(|run| (run.id, run.fence));
    let claimed: HashSet<_> = history.leases.iter().filter_map(of).collect();
    for (key, run) in &history.runs {
        // The commit of a claim is not waited for: a crash of the server may undo it.
        let known = claimed.contains(key) || history.may_be_undone(claimed_at(run.fence));
        verdict.test(known && run.starts == 1, || {
            format!("row {} of {}: {} starts, claim known: {known}", run.id, run.app, run.starts)
        });
    }
    verdict
}

fn act<'a>(history: &'a History, key: Option<&str>) -> &'a str {
    key.and_then(|key| history.biz.get(key)).map_or("", |biz| &biz.act)
}

pub(super) fn an_attempt_is_a_failed_run(history: &History) -> Verdict {
    let promise = "a retry follows a run that failed under that lease, or bytes that do not decode";
    let mut verdict = Verdict::of("H2", promise);
    for lease in &history.leases {
        let End::Written(at) = lease.end else { continue };
        let change = &history.changes[at];
        if change.act() != Act::Retry {
            continue;
        }
        let word = lease.word().map(|(_, word)| word);
        // A transaction that cannot begin or commit puts its row off, and spends nothing.
        let failed = matches!(word, Some("fail" | "panic"));
        let bad = act(history, change.key.as_deref()) == "Bad";
        verdict.test(failed || bad, || {
            let (id, queue, app) = (lease.id, &change.queue, &change.app);
            format!("row {id} of {queue} was retried by {app} after {word:?}")
        });
    }
    verdict
}

pub(super) fn no_run_starts_after_its_lease(history: &History) -> Verdict {
    let mut verdict = Verdict::of("H3", "no handler starts on a lease that is over");
    let mut late: HashMap<&str, Vec<(&Run, i64)>> = HashMap::new();
    for lease in &history.leases {
        let Some(run) = &lease.run else { continue };
        let kept = lease.kept.iter().map(|&at| &history.changes[at]);
        let kept = kept.filter(|change| change.at <= run.begun).map(|change| change.new.leased);
        let since = kept.max().unwrap_or(history.changes[lease.claim].new.leased);
        let over = run.begun - since - ttl();
        if over > SLACK {
            late.entry(&run.app).or_default().push((run, over));
        } else {
            verdict.test(true, String::new);
        }
    }
    for (app, mut runs) in late {
        runs.sort_by_key(|(run, _)| run.begun);
        let went_on = history.signals.iter().filter(|it| it.app == app && it.signal == "CONT");
        let mut excused: HashSet<i64> = HashSet::new();
        for sent in went_on {
            // Stopped behind the check.
            let next = runs.iter().filter(|(run, _)| run.begun >= sent.at).take(THREADS);
            excused.extend(next.map(|(run, _)| run.begun));
        }
        for (run, over) in runs {
            verdict.test(excused.contains(&run.begun), || {
                format!("row {} started in {app} {over} us after its lease", run.id)
            });
        }
    }
    verdict
}

pub(super) fn nothing_is_settled_before_its_run_ends(history: &History) -> Verdict {
    let promise = "a row is settled behind the end of its run: runs overlap only over lost leases";
    let mut verdict = Verdict::of("H4", promise);
    for lease in &history.leases {
        let (End::Written(at), Some((ended, word))) = (lease.end, lease.word()) else { continue };
        let change = &history.changes[at];
        // A drain whose time is over leaves behind what blocks its thread.
        let term = |app: &str| {
            let mut sent = history.signals.iter().filter(|it| it.app == app);
            sent.any(|it| it.signal == "TERM" && it.at <= change.at)
        };
        let holds =
            change.is_behind(ended) || term(&change.app) || term(&history.changes[lease.claim].app);
        verdict.test(holds, || {
            let (id, act) = (lease.id, change.act());
            format!("row {id}: {act:?} {} us before its handler said {word}", ended - change.at)
        });
    }
    verdict
}

fn is_lost_alone(lease: &Lease) -> bool {
    lease.alone && matches!(lease.end, End::Reclaimed(_))
}

/// Whether the process that had the row alone died with it. That it did so before the
/// handler's first line is the case that nobody can tell: see docs/guarantees.md.
fn died_with(history: &History, lease: &Lease) -> bool {
    let End::Reclaimed(next) = lease.end else { return false };
    let claim = &history.changes[lease.claim];
    let held = claim.at..=history.changes[next].at;
    history.exit(&claim.app).is_some_and(|exit| held.contains(&exit.at))
}

/// Rows that were judged though they never ran, because of that.
pub fn judged_unstarted(history: &History) -> usize {
    let judged = history.changes.iter().filter(|change| {
        change.op == Op::Letter && change.reason.as_deref() == Some("max_deliveries")
    });
    let judged: HashSet<i64> = judged.map(|change| change.id).collect();
    let of_judged = history.leases.iter().filter(|lease| judged.contains(&lease.id));
    let ran: HashSet<i64> =
        of_judged.clone().filter(|lease| lease.run.is_some()).map(|lease| lease.id).collect();
    let unstarted = of_judged.filter(|lease| !ran.contains(&lease.id) && is_lost_alone(lease));
    unstarted.filter(|lease| died_with(history, lease)).count()
}

/// Whether a process died, or was only out of reach for the length of a lease, nobody can
/// tell: so for `max_deliveries` it is enough that the row was all that ran.
pub(super) fn only_the_guilty_become_letters(history: &History) -> Verdict {
    let promise =
        "a dead letter failed, was rejected, or was alone until its lease or its process was over";
    let mut verdict = Verdict::of("H5", promise);
    let mut leases: HashMap<i64, Vec<&Lease>> = HashMap::new();
    for lease in &history.leases {
        leases.entry(lease.id).or_default().push(lease);
    }
    for letter in history.changes.iter().filter(|change| change.op == Op::Letter) {
        let own = leases.get(&letter.id).map(Vec::as_slice).unwrap_or_default();
        let word = own.last().and_then(|lease| lease.word()).map(|(_, word)| word);
        let reason = letter.reason.as_deref().unwrap_or_default();
        let guilty = match reason {
            "rejected" => word == Some("reject"),
            "retry_terminal" => {
                matches!(word, Some("fail" | "panic"))
                    || act(history, letter.key.as_deref()) == "Bad"
            }
            "max_deliveries" => {
                let ran = own.iter().any(|lease| lease.run.is_some());
                own.iter().any(|lease| is_lost_alone(lease) && (ran || died_with(history, lease)))
            }
            _ => false,
        };
        verdict.test(guilty, || {
            format!("row {} of {} is {reason} after {word:?}", letter.id, letter.queue)
        });
    }
    verdict
}
