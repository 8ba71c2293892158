//! What has to happen now and then, or the run has proved nothing.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::args::Store;
use crate::check::{after_ends, judged_unstarted};
use crate::history::{History, Op};
use crate::journal::UNKNOWN;
use crate::lease::{Act, End, Lease};
use crate::workload::MAX_ATTEMPTS;

pub struct Counter {
    pub name: String,
    pub count: usize,
    /// Of a fast run.
    pub floor: usize,
}

/// What a handler came to, and what had become of its lease when that was written.
fn cell(history: &History, lost: &HashSet<(&str, i64, i64)>, lease: &Lease) -> Option<String> {
    let (_, word) = lease.word()?;
    let run = lease.run.as_ref()?;
    let claim = &history.changes[lease.claim];
    let state = match lease.end {
        End::Written(at) if history.changes[at].at <= lease.until => "live",
        End::Written(_) => "expired",
        _ if lost.contains(&(&*run.app, lease.id, claim.new.deliveries)) => "re-claimed",
        _ => return None,
    };
    let how = if run.batch { "batch" } else { "single" };
    Some(format!("{word} × {state} × {how}"))
}

/// {ok, fail, reject, panic} × {live, expired, re-claimed} × {single, batch}.
pub fn cells(history: &History) -> Vec<Counter> {
    let mut counts = BTreeMap::new();
    for word in ["ok", "fail", "reject", "panic"] {
        for state in ["live", "expired", "re-claimed"] {
            for how in ["single", "batch"] {
                counts.insert(format!("{word} × {state} × {how}"), 0);
            }
        }
    }
    let lost = lost(history);
    for lease in &history.leases {
        if let Some(count) = cell(history, &lost, lease).and_then(|name| counts.get_mut(&name)) {
            *count += 1;
        }
    }
    counts.into_iter().map(|(name, count)| Counter { name, count, floor: 1 }).collect()
}

/// Settlements that found their lease lost: process, row, deliveries.
fn lost(history: &History) -> HashSet<(&str, i64, i64)> {
    let of = |line| -> (&str, i64, i64) {
        let line: &crate::journal::Line = line;
        (line.app.as_str(), line.number(1), line.number(2))
    };
    history.words("lost").map(of).collect()
}

pub fn counters(history: &History) -> Vec<Counter> {
    let mut counters = Vec::new();
    let mut count = |name: &str, count: usize, floor: usize| {
        counters.push(Counter { name: name.to_owned(), count, floor });
    };
    let reclaims = history.changes.iter().filter(|change| change.act() == Act::Claim);
    let reclaims = reclaims.filter(|change| change.old.token.is_some()).count();
    count("expired leases re-claimed", reclaims, 100);
    let [ok, failed, dead] = lost_after(history);
    count("leases lost after ok", ok, 40);
    count("leases lost after a failure", failed, 40);
    count("leases lost on the way to a dead letter", dead, 10);
    let [in_flight, repeated] = after_ends(history);
    count("rows in flight when their process ended", in_flight, 40);
    count("of these run again", repeated, 20);
    count("judged unstarted: their process died alone with them", judged_unstarted(history), 0);
    count("buffered rows not started", history.words("waited").count(), 10);
    let unknown = history.words("lost").filter(|line| line.word(4) == "true").count();
    // Of a producer: the row is there.
    let committed = history.words(UNKNOWN).filter(|line| history.biz.contains_key(line.word(1)));
    // A file answers whoever lives.
    let of_postgres = |floor| if history.store == Store::Postgres { floor } else { 0 };
    count("commits without an answer", unknown + committed.count(), of_postgres(10));
    let claims = history.words("log").filter(|line| has_no_answer(&line.words.join(" ")));
    let [unlistened, polled] = wakes(history);
    count("claims without an answer", claims.count(), of_postgres(5));
    count("LISTEN again", unlistened, of_postgres(10));
    count("wakes lost, and found by polling", polled, of_postgres(5));
    counters
}

/// A claim that was sent, and not refused.
fn has_no_answer(log: &str) -> bool {
    let refused = ["error returned from database", "onnection refused", "waiting for an open"];
    log.contains("claiming failed") && !refused.iter().any(|why| log.contains(why))
}

/// Of those whose handler had its say.
fn lost_after(history: &History) -> [usize; 3] {
    let lost = lost(history);
    let mut counts = [0; 3];
    for lease in &history.leases {
        let (Some((_, word)), Some(run)) = (lease.word(), &lease.run) else { continue };
        let claim = &history.changes[lease.claim];
        if !lost.contains(&(&*run.app, lease.id, claim.new.deliveries)) {
            continue;
        }
        let last = claim.old.attempts + 1 >= MAX_ATTEMPTS;
        match word {
            "ok" => counts[0] += 1,
            "reject" => counts[2] += 1,
            "fail" | "panic" if last => counts[2] += 1,
            "fail" | "panic" => counts[1] += 1,
            _ => {}
        }
    }
    counts
}

/// Listeners that came back, and messages that came when the process that took them did
/// not listen.
fn wakes(history: &History) -> [usize; 2] {
    let mut deaf: HashMap<&str, Vec<(i64, i64)>> = HashMap::new();
    let mut again = 0;
    for line in history.words("listens") {
        let times = deaf.entry(&line.app).or_default();
        match (line.word(1), times.last_mut()) {
            ("true", Some(last)) if last.1 == i64::MAX => {
                last.1 = line.at;
                again += 1;
            }
            ("false", _) => times.push((line.at, i64::MAX)),
            _ => {}
        }
    }
    let mut published: HashMap<i64, i64> = HashMap::new();
    let mut polled = 0;
    for change in &history.changes {
        match (change.op, change.act()) {
            (Op::Insert, _) if change.new.due <= change.at => {
                published.insert(change.id, change.at);
            }
            (_, Act::Claim) => {
                let Some(at) = published.remove(&change.id) else { continue };
                let deaf = deaf.get(&*change.app).map(Vec::as_slice).unwrap_or_default();
                polled += usize::from(deaf.iter().any(|(from, to)| (*from..*to).contains(&at)));
            }
            _ => {}
        }
    }
    [again, polled]
}
