//! What workers may write, and when they may start.

use crate::{Action, Broken, Case, Fate, Lease, Message, Number, Phase, Property, Row, Rules};
use crate::{Slot, State, Verdict};

pub(super) fn claimed<const K: usize, const S: usize, N: Number>(
    rules: &Rules<N>,
    before: &State<K, S, N>,
    slot: u8,
    old: &Message<N>,
    new: &Message<N>,
    now: N,
) -> Broken {
    let mut broken = Broken::default();
    let (Some(was), Some(is)) = (old.row, new.row) else {
        broken.unless(Property::D1, false);
        return broken;
    };
    broken.unless(Property::T1, was.due <= now);
    broken.unless(Property::L1, was.lease.is_none_or(|it| it.is_over(now, rules.ttl)));
    broken.unless(Property::L2, is.lease.is_some_and(|lease| lease.at == now));
    let fresh = is.lease.is_some_and(|lease| old.truth.tokens >> lease.token & 1 == 0);
    broken.unless(Property::L3, fresh && before.slots[usize::from(slot)].is_none());
    broken.unless(Property::C1, is.deliveries == was.deliveries + N::from(true));
    broken.unless(Property::C2, is.attempts == was.attempts);
    broken.unless(Property::T2, is.due == was.due);
    broken
}

pub(super) fn worked<const K: usize, const S: usize, N: Number>(
    rules: &Rules<N>,
    before: &State<K, S, N>,
    action: Action,
    slot: &Slot<N>,
    after: &State<K, S, N>,
) -> Broken {
    let key = usize::from(slot.key);
    let (old, new, now) = (&before.messages[key], &after.messages[key], after.now);
    let mut broken = Broken::default();
    if new.truth.started != old.truth.started || started(action, slot, after) {
        broken |= start(rules, before, action, slot);
    }
    let left = action.slot().and_then(|at| after.slots[usize::from(at)]);
    if left.is_some_and(|left| left.ends > slot.ends) {
        let lease = new.row.and_then(|row| row.lease);
        broken.unless(Property::L2, lease.is_some_and(|lease| lease.at == now));
    }
    if (old.row, old.letters) == (new.row, new.letters) {
        return broken;
    }
    let held = old.row.and_then(|row| row.lease).is_some_and(|lease| lease.claim == slot.claim);
    broken.unless(Property::L4, held);
    let lettered = new.letters == old.letters + 1;
    broken.unless(Property::D2, new.letters == old.letters || lettered && new.row.is_none());
    let ran = old.truth.started == slot.claim;
    let verdict = match slot.phase {
        Phase::Done(verdict) | Phase::Half(verdict) => Some(verdict),
        _ => None,
    };
    if lettered {
        broken.unless(Property::H2, ran || verdict == Some(Verdict::TooOften));
        broken.unless(Property::H5, old.truth.failed || old.truth.silent);
    }
    let Some(was) = old.row else { return broken };
    match new.row {
        None => {
            let handled = old.truth.handled >> slot.claim & 1 == 1;
            broken.unless(Property::D1, lettered || handled && verdict == Some(Verdict::Ok));
        }
        Some(is) => broken |= kept(rules, action, verdict, ran, (&was, &is), now),
    }
    broken
}

/// The row was written to, and is still there.
fn kept<N: Number>(
    rules: &Rules<N>,
    action: Action,
    verdict: Option<Verdict>,
    ran: bool,
    (was, is): (&Row<N>, &Row<N>),
    now: N,
) -> Broken {
    let mut broken = Broken::default();
    let failed = is.attempts != was.attempts || verdict == Some(Verdict::Fail);
    if failed && matches!(action, Action::Settle { .. }) {
        broken.unless(Property::H2, ran);
        broken.unless(Property::C2, is.attempts == was.attempts + N::from(true));
        broken.unless(Property::C2, is.attempts < rules.max_attempts);
    } else {
        broken.unless(Property::C2, is.attempts == was.attempts);
    }
    let due = match action {
        Action::Settle { .. } => now + rules.delay,
        Action::Keep { .. } if is.lease.is_none() => now + rules.ttl,
        _ => was.due,
    };
    broken.unless(Property::T2, is.due == due);
    // More than one is taken back from a row that was delivered too often.
    let unstarted = matches!(action, Action::Release { .. } | Action::Abandon { .. })
        || matches!(action, Action::Keep { .. }) && verdict != Some(Verdict::TooOften)
        || verdict == Some(Verdict::Snooze);
    let condemned =
        matches!(action, Action::Keep { .. } | Action::Release { .. }) && is.lease.is_some();
    let unstarted = unstarted && !condemned;
    let fewer = is.deliveries < was.deliveries;
    broken.unless(Property::C1, if unstarted { fewer } else { is.deliveries == was.deliveries });
    let extends = matches!(
        action,
        Action::Start { .. } | Action::Extend { .. } | Action::Mark { .. } | Action::Join { .. }
    ) || condemned;
    let lease = is.lease.map(|Lease { at, .. }| at);
    broken.unless(Property::L2, lease == extends.then_some(now));
    broken
}

/// Whether the handler runs now that did not before.
fn started<const K: usize, const S: usize, N: Number>(
    action: Action,
    slot: &Slot<N>,
    after: &State<K, S, N>,
) -> bool {
    let runs = |at: u8| after.slots[usize::from(at)].is_some_and(|it| it.phase == Phase::Running);
    matches!(action, Action::Start { slot: at } if runs(at)) && slot.phase != Phase::Running
}

fn start<const K: usize, const S: usize, N: Number>(
    rules: &Rules<N>,
    before: &State<K, S, N>,
    action: Action,
    slot: &Slot<N>,
) -> Broken {
    let mut broken = Broken::default();
    let (message, now) = (&before.messages[usize::from(slot.key)], before.now);
    broken.unless(Property::T4, message.fate != Fate::Cancelled);
    broken.unless(Property::H1, message.truth.started != slot.claim);
    broken.unless(Property::H5, message.truth.condemned != slot.claim);
    let lease = message.row.and_then(|row| row.lease).filter(|it| it.claim == slot.claim);
    broken.unless(Property::H3, lease.is_some_and(|it| !it.is_over(now, rules.ttl)));
    let own = action.slot();
    let others = (0..).zip(&before.slots).filter(|(at, _)| Some(*at) != own);
    let runs = |it: &&Slot<N>| it.key == slot.key && it.phase == Phase::Running;
    let mut earlier = others.filter_map(|(_, it)| it.as_ref()).filter(runs);
    broken.unless(Property::H4, earlier.all(|it| it.ends <= now));
    // Who runs alone is not to be blamed for others.
    let beside =
        own.is_some_and(|at| rules.running_beside(before, at).any(|it| it.case == Case::Alone));
    broken.unless(Property::H5, !beside);
    broken
}
