//! Runs of handlers, by their own words.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::Verdict;
use super::drains::UNDER_WAY;
use crate::args::Store;
use crate::history::{Change, History, Op, Run};
use crate::lease::{Act, End, Lease, claimed_at, ttl};

/// How long a thread may be kept waiting between the check of a lease and the first line
/// of the handler.
const SLACK: i64 = 250_000;
/// Threads of a process that may have been stopped in between: those of its runtime, and those
/// that the workers of `plain` have, one each.
const THREADS: [(bool, usize); 2] = [(false, 2), (true, 4)];
/// How soon after one another the rows of a batch begin: their handler says so of each.
const TOGETHER: i64 = 1_000;

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
        let mut excused: HashSet<(i64, i64)> = HashSet::new();
        for sent in went_on {
            // Stopped behind the check.
            for (plain, threads) in THREADS {
                let soon = sent.at..sent.at + ttl();
                let next = runs.iter().map(|(run, _)| *run);
                let next = next.filter(|run| run.plain == plain && soon.contains(&run.begun));
                excused.extend(begun_by(threads, next).map(|run| (run.id, run.fence)));
            }
        }
        for (run, over) in runs {
            verdict.test(excused.contains(&(run.id, run.fence)), || {
                format!("row {} started in {app} {over} us after its lease", run.id)
            });
        }
    }
    verdict
}

/// Those that the first so many threads began, one run each or one batch.
pub(super) fn begun_by<'a>(
    threads: usize,
    runs: impl Iterator<Item = &'a Run>,
) -> impl Iterator<Item = &'a Run> {
    let (mut begun, mut batch) = (0, None);
    runs.take_while(move |run| {
        let same = run.batch && batch.is_some_and(|last| run.begun - last < TOGETHER);
        begun += usize::from(!same);
        batch = run.batch.then_some(run.begun);
        begun <= threads
    })
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
    // Sessions of SQLite have no names: of whom it was, nobody knows.
    let own = |app: &str| history.store == Store::Sqlite || *app == *claim.app;
    history.exits.iter().any(|exit| own(&exit.app) && held.contains(&exit.at))
}

/// Whether the database heard nothing of the process from the last time that it had the row
/// to itself until that lease was over: the other case that nobody can tell.
fn was_unheard_of(history: &History, lease: &Lease) -> bool {
    let since = lease.kept.last().map_or(lease.claim, |at| *at);
    let (since, app) = (&history.changes[since], &history.changes[lease.claim].app);
    let silent = since.at..lease.until;
    if history.store == Store::Sqlite {
        // Nor whose a write is: but who was in nobody's way had no reason to be silent.
        let silencing = ["worker stopped", "file locked"];
        let mut done = history.done.iter().filter(|done| silencing.contains(&done.kind));
        return done.any(|done| done.from < silent.end && silent.start < done.to);
    }
    // What was on its way when it was marked says nothing of whether an answer reached it.
    let heard = since.at + UNDER_WAY;
    let mut others = history.changes.iter().filter(|it| it.app == *app && it.xid != since.xid);
    !others.any(|change| silent.contains(&change.at) && change.stmt > heard)
}

/// The leases for which a row may be judged that was delivered too often: it was all that ran,
/// or nobody can tell that it did not.
fn condemning<'a>(history: &'a History, leases: &[&'a Lease]) -> Vec<&'a Lease> {
    let told = |lease: &&&Lease| {
        let excused = || died_with(history, lease) || was_unheard_of(history, lease);
        is_lost_alone(lease) && (lease.run.is_some() || excused())
    };
    leases.iter().filter(told).copied().collect()
}

fn of_rows(history: &History) -> HashMap<i64, Vec<&Lease>> {
    let mut leases: HashMap<i64, Vec<&Lease>> = HashMap::new();
    for lease in &history.leases {
        leases.entry(lease.id).or_default().push(lease);
    }
    leases
}

fn letters(history: &History) -> impl Iterator<Item = &Change> {
    history.changes.iter().filter(|change| change.op == Op::Letter)
}

/// Rows that were judged though they had not begun when they were alone.
pub fn judged_unstarted(history: &History) -> usize {
    let leases = of_rows(history);
    let judged = letters(history).filter(|it| it.reason.as_deref() == Some("max_deliveries"));
    let unstarted = judged.filter(|letter| {
        let own = leases.get(&letter.id).map(Vec::as_slice).unwrap_or_default();
        let condemning = condemning(history, own);
        !condemning.is_empty() && condemning.iter().all(|lease| lease.run.is_none())
    });
    unstarted.count()
}

/// What else the database heard of a process that had a row alone and lost it, from when on: the
/// last of it.
fn heard_of(history: &History, lease: &Lease) -> String {
    let since = lease.kept.last().map_or(lease.claim, |at| *at);
    let (since, app) = (&history.changes[since], &history.changes[lease.claim].app);
    let own = |it: &&Change| it.app == *app && (since.at..lease.until).contains(&it.at);
    let told = history.changes.iter().filter(own).filter(|it| it.xid != since.xid).map(|it| {
        let seconds = Duration::from_micros((it.at - since.at).unsigned_abs()).as_secs_f64();
        format!("; {app} did {:?} to {} {seconds:.3} s after that", it.act(), it.id)
    });
    let told: Vec<String> = told.collect();
    told[told.len().saturating_sub(5)..].concat()
}

/// What was done to a row, when in seconds, and by whom.
fn life(history: &History, id: i64) -> String {
    let mut own = history.changes.iter().filter(|change| change.id == id).peekable();
    let first = own.peek().map_or(0, |change| change.at);
    let told = own.map(|it| {
        let seconds = Duration::from_micros((it.at - first).unsigned_abs()).as_secs_f64();
        format!("{seconds:.3} {:?} by {}", it.act(), it.app)
    });
    told.collect::<Vec<_>>().join(", ")
}

/// Whether a process died, or was only out of reach for the length of a lease, nobody can
/// tell: so for `max_deliveries` it is enough that the row was all that ran.
pub(super) fn only_the_guilty_become_letters(history: &History) -> Verdict {
    let promise =
        "a dead letter failed, was rejected, or was alone until its lease or its process was over";
    let mut verdict = Verdict::of("H5", promise);
    let leases = of_rows(history);
    for letter in letters(history) {
        let own = leases.get(&letter.id).map(Vec::as_slice).unwrap_or_default();
        let word = own.last().and_then(|lease| lease.word()).map(|(_, word)| word);
        let reason = letter.reason.as_deref().unwrap_or_default();
        let guilty = match reason {
            "rejected" => word == Some("reject"),
            "retry_terminal" => {
                matches!(word, Some("fail" | "panic"))
                    || act(history, letter.key.as_deref()) == "Bad"
            }
            "max_deliveries" => !condemning(history, own).is_empty(),
            _ => false,
        };
        verdict.test(guilty, || {
            let (id, queue) = (letter.id, &letter.queue);
            let heard = own.iter().rev().find(|lease| is_lost_alone(lease));
            let heard = heard.map(|lease| heard_of(history, lease)).unwrap_or_default();
            format!("row {id} of {queue} is {reason} after {word:?}: {}{heard}", life(history, id))
        });
    }
    verdict
}
