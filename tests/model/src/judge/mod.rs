//! Which promises a step broke, told from what lay there before and after.

mod work;

use crate::{Action, Broken, Fate, Message, Number, Property, Row, Rules, State};

/// Knows the figures of the rules (how long a lease is, how many attempts there may be),
/// and nothing of how they come to what they write.
#[must_use]
pub fn judge<const K: usize, const S: usize, N: Number>(
    rules: &Rules<N>,
    before: &State<K, S, N>,
    action: Action,
    after: &State<K, S, N>,
) -> Broken {
    let mut broken = lasting(rules, after);
    let own = action.key(before);
    for (key, (old, new)) in (0..).zip(before.messages.iter().zip(&after.messages)) {
        broken.unless(Property::L4, Some(key) == own || old == new);
    }
    let Some(key) = own else { return broken };
    let (old, new) = (&before.messages[usize::from(key)], &after.messages[usize::from(key)]);
    let now = after.now;
    match action {
        Action::Publish { .. } => {
            let taken = timer_lives(rules, before, key);
            broken.unless(Property::P1, new.row.is_some() == (new.fate == Fate::Committed));
            broken.unless(Property::T3, (new.fate == Fate::Refused) == taken);
            let due = now + rules.delay_of(key);
            broken.unless(Property::T2, new.row.is_none_or(|row| row == Row::new(due)));
        }
        Action::RollBack { .. } => broken.unless(Property::P1, new.row.is_none()),
        Action::Cancel { .. } => {
            let cancelled = new.fate == Fate::Cancelled;
            let unleased = old.row.is_some_and(|row| row.lease.is_none());
            let right = if cancelled { unleased && new.row.is_none() } else { old == new };
            broken.unless(Property::T4, right && cancelled == unleased);
        }
        Action::Replay { .. } => {
            let fresh = Some(Row::new(now));
            let (letters, replayed) = (old.letters - 1, old.replayed + 1);
            let done = Message { row: fresh, letters, replayed, ..*old };
            let right = if timer_lives(rules, before, key) { *old } else { done };
            broken.unless(Property::R1, old.row.is_none() && *new == right);
        }
        Action::Claim { slot, .. } => broken |= work::claimed(rules, before, slot, old, new, now),
        _ => {
            let slot = action.slot().and_then(|slot| before.slots[usize::from(slot)]);
            if let Some(slot) = slot {
                broken |= work::worked(rules, before, action, &slot, after);
            }
        }
    }
    broken
}

/// What holds at all times.
fn lasting<const K: usize, const S: usize, N: Number>(
    rules: &Rules<N>,
    state: &State<K, S, N>,
) -> Broken {
    let mut broken = Broken::default();
    let mut timers = 0;
    for (key, message) in (0..).zip(&state.messages) {
        let there = message.row.is_some() || message.letters > 0;
        let owed = message.fate == Fate::Committed && message.truth.handled == 0;
        broken.unless(Property::M1, there || !owed);
        timers += u8::from(rules.is_timer(key) && message.row.is_some());
    }
    broken.unless(Property::T3, timers <= 1);
    broken
}

fn timer_lives<const K: usize, const S: usize, N: Number>(
    rules: &Rules<N>,
    state: &State<K, S, N>,
    key: u8,
) -> bool {
    let mut rows = (0..).zip(&state.messages).filter(|(_, message)| message.row.is_some());
    rules.is_timer(key) && rows.any(|(other, _)| rules.is_timer(other))
}
