//! Ends: of processes, and of the run.

use std::os::unix::process::ExitStatusExt as _;

use super::Verdict;
use crate::args::Store;
use crate::fleet::Exit;
use crate::history::History;
use crate::lease::{Act, End, Lease, ttl};
use crate::workload::EXIT;

/// What was sent before something was heard may still be on its way.
pub(super) const UNDER_WAY: i64 = 500_000;
/// `drain_timeout`, and what the machine needs beside it.
const GRACE: i64 = 10_000_000;
/// The longest wait of a loop that met errors.
const BACKOFF: i64 = 30_000_000;

/// Of drains while nothing else was wrong, nor had been within a lease.
pub(super) fn a_drain_leaves_nothing(history: &History) -> Verdict {
    let promise = "a drain claims no more, ends well and in time, and leaves no lease";
    let mut verdict = Verdict::of("G1", promise);
    let quiet = |at: i64| at >= history.quiet.0 + ttl();
    for sent in history.signals.iter().filter(|it| it.signal == "TERM" && quiet(it.at)) {
        let worker = sent.app.starts_with('w');
        let own = |app: &str| *app == sent.app;
        let drained = |exit: &&Exit| {
            worker && !by_its_handler(history, exit) && !before_it_was_ready(history, exit)
        };
        let Some(exit) = history.exit(&sent.app).filter(drained) else { continue };
        // By its own word: sending it takes a process, and hearing it a turn on the machine.
        let heard = history.words("draining").find(|line| own(&line.app));
        let heard = heard.map_or(sent.at, |line| line.at.max(sent.at));
        let took = exit.at - heard;
        let ended = exit.status.code() == Some(0) && took < GRACE;
        verdict.test(ended, || format!("{}: {} after {took} us", sent.app, exit.status));
        if history.store == Store::Sqlite {
            // Its sessions have no names: nobody knows whose a claim is.
            continue;
        }
        let claims = history.changes.iter().filter(|change| change.act() == Act::Claim);
        let late = claims.filter(|it| own(&it.app) && it.stmt > heard + UNDER_WAY).count();
        verdict.test(late == 0, || format!("{} took {late} rows when it was draining", sent.app));
        let left = history.leases.iter().filter(|lease| match lease.end {
            End::Written(_) => false,
            End::Reclaimed(_) | End::Open => own(&history.changes[lease.claim].app),
        });
        // What ran out under its handler before the end was lost, and not left.
        let is_left = |lease: &&Lease| {
            let since = if lease.run.is_some() { exit.at } else { exit.at - ttl() };
            lease.until > since
        };
        let left: Vec<_> = left.filter(is_left).collect();
        verdict.test(left.is_empty(), || {
            let since = |at: i64| (at - sent.at) / 1000;
            let told = left.iter().take(5).map(|lease| {
                let (claim, started) = (&history.changes[lease.claim], lease.run.is_some());
                let (at, until) = (since(claim.at), since(lease.until));
                format!("{} from {at} to {until} ms, started: {started}", lease.id)
            });
            let (app, many, ended) = (&sent.app, left.len(), since(exit.at));
            let told = told.collect::<Vec<_>>().join("; ");
            format!("{app} ended {ended} ms after the signal and left {many} leases: {told}")
        });
    }
    verdict
}

pub(super) fn a_worker_ends_only_when_told(history: &History) -> Verdict {
    let promise = "a worker that has started ends only by a signal or its own handler";
    let mut verdict = Verdict::of("W1", promise);
    for exit in history.exits.iter().filter(|exit| exit.app.starts_with('w')) {
        verdict.test(explained(history, exit), || format!("{}: {}", exit.app, exit.status));
    }
    verdict
}

/// One that aborts or exits because its message says so, in the middle of a drain too.
fn by_its_handler(history: &History, exit: &Exit) -> bool {
    let acts: &[&str] = match (exit.status.signal(), exit.status.code()) {
        (Some(6), _) => &["Abort", "Overflow"],
        (_, Some(EXIT)) => &["Exit"],
        _ => return false,
    };
    let mut own = history.runs.values().filter(|run| *run.app == exit.app && run.ended.is_none());
    own.any(|run| {
        let biz = history.biz.get(&*run.key);
        run.begun <= exit.at && biz.is_some_and(|biz| acts.contains(&biz.act.as_str()))
    })
}

/// From the first fault until a start is over that the last one was in the way of.
fn amid_faults(history: &History, at: i64) -> bool {
    let begun = history.done.iter().map(|done| done.from).min();
    begun.is_some_and(|begun| (begun..history.quiet.0 + GRACE).contains(&at))
}

fn is_ready(history: &History, exit: &Exit) -> bool {
    history.words("ready").any(|line| line.app == exit.app)
}

/// By a signal that came before its handler was set.
fn before_it_was_ready(history: &History, exit: &Exit) -> bool {
    exit.status.signal() == Some(15) && !is_ready(history, exit)
}

fn explained(history: &History, exit: &Exit) -> bool {
    let sent = |signal| history.signals.iter().any(|it| it.app == exit.app && it.signal == signal);
    let ready = is_ready(history, exit);
    match (exit.status.signal(), exit.status.code()) {
        _ if by_its_handler(history, exit) => true,
        (Some(9), _) => sent("KILL"),
        (Some(15), _) => sent("TERM") && before_it_was_ready(history, exit),
        (_, Some(0 | 1 | 143)) if sent("TERM") => true,
        // It cannot start without a database.
        (_, Some(1)) => !ready && amid_faults(history, exit.at),
        _ => false,
    }
}

pub(super) fn everything_is_handled_soon(history: &History) -> Verdict {
    let promise = "when faults end, everything is handled within lease, backoff and 5 s";
    let mut verdict = Verdict::of("Z1", promise);
    let (took, left) = (history.quiet.1 - history.quiet.0, history.left.len());
    let limit = ttl() + BACKOFF + 5_000_000;
    verdict.test(took <= limit && left == 0, || format!("{left} rows are left after {took} us"));
    verdict
}

pub(super) fn the_file_is_sound(history: &History) -> Verdict {
    let mut verdict = Verdict::of("S1", "the SQLite file is sound after every kill");
    verdict.tested = history.done.iter().filter(|done| done.kind == "worker killed").count();
    verdict.broken.clone_from(&history.broken);
    verdict
}
