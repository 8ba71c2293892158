//! Claims and fencing.

use std::collections::HashMap;

use super::Verdict;
use crate::history::{Change, History};
use crate::lease::{Act, End, Lease, ttl};

fn claims(history: &History) -> impl Iterator<Item = &Change> {
    history.changes.iter().filter(|change| change.act() == Act::Claim)
}

pub(super) fn no_claim_over_a_lease(history: &History) -> Verdict {
    let mut verdict = Verdict::of("L1", "no claim takes a row whose lease still holds");
    for claim in claims(history).filter(|claim| claim.old.token.is_some()) {
        let early = claim.old.leased + ttl() - claim.new.leased;
        verdict.test(early <= 0, || {
            format!("row {} was taken by {} {early} us too early", claim.id, claim.app)
        });
    }
    verdict
}

pub(super) fn a_lease_begins_with_its_claim(history: &History) -> Verdict {
    let mut verdict = Verdict::of("L2", "a lease begins while its statement runs");
    for change in &history.changes {
        if matches!(change.act(), Act::Claim | Act::Renew | Act::Mark) {
            let holds = (change.stmt..=change.at).contains(&change.new.leased);
            verdict.test(holds, || {
                let Change { id, stmt, at, new, .. } = change;
                format!("row {id}: {} is not within {stmt}..{at}", new.leased)
            });
        }
    }
    verdict
}

pub(super) fn a_token_is_of_one_claim(history: &History) -> Verdict {
    let mut verdict = Verdict::of("L3", "each claim has a token that no other ever had");
    let mut seen: HashMap<&str, (i64, i64)> = HashMap::new();
    for change in &history.changes {
        let (Act::Claim | Act::Mark, Some(token)) = (change.act(), &change.new.token) else {
            continue;
        };
        // What one statement claims has one time.
        let claim = (change.xid, change.new.leased);
        let first = *seen.entry(token).or_insert(claim);
        let fresh = first == claim && change.old.token.as_ref() != Some(token);
        verdict.test(fresh, || format!("{} used {token} twice, on row {}", change.app, change.id));
    }
    verdict
}

/// Of every lease, what was written under it.
fn writes<'a>(history: &'a History, lease: &'a Lease) -> impl Iterator<Item = &'a Change> {
    let end = match lease.end {
        End::Written(at) => Some(at),
        End::Reclaimed(_) | End::Open => None,
    };
    lease.kept.iter().copied().chain(end).map(|at| &history.changes[at])
}

pub(super) fn only_the_holder_writes(history: &History) -> Verdict {
    let promise = "a row is retried, deleted, released and renewed by who claimed it";
    let mut verdict = Verdict::of("L4", promise);
    for lease in &history.leases {
        let holder = &history.changes[lease.claim].app;
        for write in writes(history, lease) {
            verdict.test(write.app == *holder, || {
                let act = write.act();
                format!("row {} of {holder}: {act:?} by {}", lease.id, write.app)
            });
        }
    }
    verdict
}

pub(super) fn a_free_row_is_not_settled(history: &History) -> Verdict {
    let mut verdict = Verdict::of("L5", "what nobody holds is deleted as a cancelled timer only");
    for change in &history.changes {
        if matches!(change.act(), Act::Delete | Act::Retry) {
            let cancelled = change.act() == Act::Delete && change.timer.is_some();
            let holds = change.old.token.is_some() || cancelled && !change.by_worker();
            verdict.test(holds, || {
                format!("row {}: {:?} by {} of a free row", change.id, change.act(), change.app)
            });
        }
    }
    verdict
}
