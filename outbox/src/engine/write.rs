//! Writes settlements of one kind, and tries again until they are written or their leases are over.
//! What cannot be written together is divided, what is locked goes to `later`, and a dead letter
//! that cannot be written gives its row back. The table at [`write()`] lists the cases.

use std::collections::{BTreeMap, VecDeque};

use tokio::time::{Instant, sleep};

use super::backoff::Backoff;
use super::later::Later;
use super::lease::kind;
use super::send;
use super::settlement::Settlement;
use super::settling::Settling;
use crate::error::StoreError;
use crate::store::{Landed, Lease, Store};
use crate::telemetry::{TARGET, error, warn};

/// The rows of one statement.
struct Part {
    rows: Vec<Settling>,
    /// It was refused before, though nobody had locked its rows.
    refused: bool,
}

impl Part {
    fn of(rows: Vec<Settling>) -> Self {
        Self { rows, refused: false }
    }
}

/// Divides a group into statements. Dead letters that have much less time than the others go apart:
/// when their statement is given up because they cannot wait any longer, the others would fail with
/// it.
fn in_parts(group: Vec<Settling>) -> Vec<Part> {
    let now = Instant::now();
    let left = |one: &Settling| one.letter_until(now).map(|until| kind(until - now));
    let first = group.first().and_then(left);
    if first.is_none() || group.iter().all(|one| left(one) == first) {
        return vec![Part::of(group)];
    }
    let mut parts = BTreeMap::<_, Vec<_>>::new();
    for one in group {
        parts.entry(left(&one)).or_default().push(one);
    }
    parts.into_values().map(Part::of).collect()
}

/// What follows a try of one part.
enum Then {
    /// This many rows landed.
    Written(usize),
    /// Nothing more: the row was reported as lost, or handed over to those who write letters.
    Closed,
    /// These parts, before any other.
    AtOnce(Vec<Part>),
    /// The parts `again`, behind the others, which they must not hold up. All parts pause first,
    /// because what is in the way of one may be in the way of the others. Rows in `late` have no
    /// time left for their dead letters, and are given back.
    AfterAPause { late: Vec<Settling>, again: Vec<Part> },
    /// Its dead letter cannot be written.
    GiveBack(Vec<Settling>),
}

/// Writes a group, and returns how many landed, without those that were given back because their
/// letters could not be written. Each row is tried until its result is known, its lease is over, or
/// nothing is written any more. A dead letter is tried only as long as its row can still be given
/// back.
///
/// | a part of them | what follows |
/// |---|---|
/// | is answered for | each row is reported; condemned rows that are locked go to `later` |
/// | is refused for good: several rows | each by itself, so that one does not keep the others |
/// | the same: a letter | its row is given back, once nothing else waits or it is urgent |
/// | the same: an ack that publishes | a failure of its handler is written; a letter goes to others |
/// | the same: anything else | it is reported as lost; the row comes back after its lease |
/// | has no answer | its halves: there may never be an answer to so large a statement |
/// | the same: one row, once more | it goes to `later`: its lease may be long |
/// | is refused for now: some rows are locked | they go to `later`; the others are tried again |
/// | the same: no row is locked, but something is | acks that set timers go to `later` |
/// | the same: the others | the whole once more, then its halves; one row goes to `later` |
/// | the same: nobody knows | the whole again; its halves, if the server had no time for it |
/// | is cut off, because nothing is written any more | each is reported as lost, perhaps written |
///
/// What is refused for good is dealt with at once. Everything else is tried again after a pause,
/// behind the other parts.
pub(super) async fn write<S: Store>(store: &S, group: Vec<Settling>, later: &mut Later) -> usize {
    let mut backoff = Backoff::of_errors();
    let (mut parts, mut landed, mut tried) = (VecDeque::from(in_parts(group)), 0, false);
    let mut to_give_back = Vec::new();
    loop {
        let urgent = |one: &Settling| parts.is_empty() || one.is_urgent(Instant::now());
        if to_give_back.iter().any(urgent) {
            let rows = std::mem::take(&mut to_give_back);
            given_back(rows).for_each(|part| parts.push_front(part));
        }
        let Some(mut part) = parts.pop_front() else { break };
        // While other parts were tried, it may have become too late for these rows.
        if tried || later.is_over() {
            let late = give_up_late(&mut part.rows, later.is_over());
            if !late.is_empty() {
                parts.push_front(part);
                given_back(late).for_each(|part| parts.push_front(part));
                continue;
            }
        }
        if part.rows.is_empty() {
            continue;
        }
        tried = true;
        match try_once(store, part, later).await {
            Then::Written(more) => {
                landed += more;
                backoff.reset();
            }
            Then::Closed => {}
            Then::AtOnce(first) => first.into_iter().rev().for_each(|part| parts.push_front(part)),
            Then::AfterAPause { late, again } => {
                given_back(late).for_each(|part| parts.push_front(part));
                parts.extend(again.into_iter().filter(|part| !part.rows.is_empty()));
                if !parts.is_empty() {
                    later.unless_over(sleep(backoff.after(true))).await;
                }
            }
            Then::GiveBack(mut rows) => to_give_back.append(&mut rows),
        }
    }
    landed
}

/// Sends a part, and deals with the answer.
async fn try_once<S: Store>(store: &S, mut part: Part, later: &mut Later) -> Then {
    let Some(sent) = later.unless_over(send::in_time(store, &part.rows)).await else {
        part.rows.iter_mut().for_each(|one| one.unanswered = true);
        return Then::AtOnce(vec![part]);
    };
    match sent {
        Ok(mut hits) => {
            let passed_by = passed_by(store, &mut part.rows, &mut hits);
            let locked = later.unless_over(passed_by).await.unwrap_or_default();
            if !locked.is_empty() {
                later.add(locked);
            }
            Then::Written(close(store, &part.rows, &hits))
        }
        Err(failed) if failed.transient => {
            let rows = part.rows.len();
            let subscriber = part.rows[0].reader.subscriber.name();
            let again = rows == 1 && part.rows[0].unanswered && failed.perhaps_done;
            for one in &mut part.rows {
                one.failed(&failed);
            }
            let late = give_up_late(&mut part.rows, false);
            warn!(
                target: TARGET, subscriber, error = %failed, rows,
                "settling failed; trying again"
            );
            let again = if again {
                later.add(part.rows);
                Vec::new()
            } else {
                divide(store, part, &failed, later).await
            };
            Then::AfterAPause { late, again }
        }
        Err(_) if part.rows.len() > 1 => {
            let each = part.rows.into_iter();
            Then::AtOnce(each.map(|one| Part::of(vec![one])).collect())
        }
        Err(refused) => {
            error!(
                target: TARGET, error = %refused, row_id = part.rows[0].lease.id,
                "a settlement was refused; if no other one can be written, the row \
                 stays and comes back after its lease"
            );
            let one = &mut part.rows[0];
            if one.give_back() {
                Then::GiveBack(part.rows)
            } else if one.refuse(&refused) {
                hand_over(part, later)
            } else {
                one.close(false, false);
                Then::Closed
            }
        }
    }
}

/// What follows when an ack has become a failure. A letter is for those who write letters: the table
/// of these may be locked, and acks would wait behind it. If there is no room, its row is given back.
fn hand_over(mut part: Part, later: &Later) -> Then {
    let is_letter = part.rows[0].is_letter();
    let Some(letters) = later.letters.as_ref().filter(|_| is_letter) else {
        return Then::AtOnce(vec![part]);
    };
    part.rows = part.rows.into_iter().filter_map(|one| letters.take(one)).collect();
    if part.rows.is_empty() {
        return Then::Closed;
    }
    for one in &mut part.rows {
        one.give_back();
    }
    Then::GiveBack(part.rows)
}

/// Parts for rows whose dead letters cannot be written: one statement for each kind.
fn given_back(rows: Vec<Settling>) -> impl Iterator<Item = Part> {
    let condemned = |one: &Settling| matches!(one.settlement, Settlement::Condemned);
    let (condemned, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(condemned);
    [condemned, others].into_iter().filter(|rows| !rows.is_empty()).map(Part::of)
}

/// What to try again, after a failure that may pass.
async fn divide<S: Store>(
    store: &S,
    part: Part,
    failed: &StoreError,
    later: &mut Later,
) -> Vec<Part> {
    let Part { mut rows, refused } = part;
    let mut whole = !failed.perhaps_done;
    let free = if whole { later.unless_over(free(store, &mut rows)).await } else { None };
    let free = free.and_then(Result::ok);
    // A server that took too long may never have enough time for so many rows.
    whole &= free.is_some() || !failed.took_too_long;
    if let Some(free) = free {
        let mut free = free.into_iter();
        let (free, locked): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|_| free.next().unwrap_or_default());
        if free.is_empty() || !locked.is_empty() {
            later.add(locked);
            return vec![Part::of(free)];
        }
        // Somebody holds one of their timers. It takes a wait of each to find out which.
        let waits = |one: &Settling| failed.locked && one.sets_timers();
        let (waiting, others) = free.into_iter().partition(waits);
        later.add(waiting);
        rows = others;
        // It may have been a deadlock, or a lock that is gone by now, or a lock that is not a
        // row's.
        if rows.len() == 1 && refused {
            later.add(std::mem::take(&mut rows));
        }
        whole = !refused;
        if whole {
            return vec![Part { rows, refused: true }];
        }
    }
    let half = if whole { 0 } else { rows.len() / 2 };
    let rest = rows.split_off(half);
    vec![Part { rows, refused }, Part { rows: rest, refused }]
}

/// Which rows nobody else has locked. The database tells by extending their leases, because a locked
/// row is not extended. A row that is gone counts as free: the next try finds out.
pub(super) async fn free<S: Store>(store: &S, rows: &mut [Settling]) -> Result<Landed, StoreError> {
    let sent = Instant::now();
    let leases: Vec<_> = rows.iter().map(Settling::as_extend).collect();
    let mut free = store.extend(&leases).await?;
    for (one, _) in rows.iter_mut().zip(&free).filter(|(_, extended)| **extended) {
        one.extended(sent);
    }
    if free.contains(&false) {
        let leases: Vec<Lease> = rows.iter().map(|one| one.lease).collect();
        let held = store.held(&leases).await?;
        free.iter_mut().zip(held).for_each(|(free, held)| *free |= !held);
    }
    Ok(free)
}

/// Reports what became of each row. Returns how many were written, not counting those that were
/// given back because their letters could not be written.
fn close<S: Store>(store: &S, part: &[Settling], landed: &[bool]) -> usize {
    for (settling, &hit) in part.iter().zip(landed) {
        settling.close(hit, store.keeps_dead_letters());
        if hit {
            settling.announce();
        }
    }
    let written = |(settling, hit): &(&Settling, &bool)| {
        **hit && !matches!(settling.settlement, Settlement::Kept | Settlement::Condemned)
    };
    part.iter().zip(landed).filter(written).count()
}

/// Gives up rows whose time is over, or all of them: another claim may have them. Returns the rows
/// that are to be given back instead, because their dead letters were not written in time.
pub(super) fn give_up_late(rows: &mut Vec<Settling>, all: bool) -> Vec<Settling> {
    let now = Instant::now();
    let mut to_give_back = Vec::new();
    for mut settling in rows.extract_if(.., |settling| all || settling.is_late(now)) {
        if !all && settling.give_back() {
            to_give_back.push(settling);
            continue;
        }
        settling.close(false, false);
    }
    to_give_back
}

/// Takes out the condemned rows whose leases did not go on because somebody has locked them: once
/// its lease is over, such a row would run.
async fn passed_by<S: Store>(
    store: &S,
    rows: &mut Vec<Settling>,
    hits: &mut Landed,
) -> Vec<Settling> {
    let condemned = matches!(rows[0].settlement, Settlement::Condemned);
    if !condemned || hits.iter().all(|hit| *hit) {
        return Vec::new();
    }
    let leases: Vec<Lease> = rows.iter().map(|one| one.lease).collect();
    let held = store.held(&leases).await.unwrap_or_else(|_| vec![true; rows.len()]);
    let locked: Vec<bool> = hits.iter().zip(held).map(|(hit, held)| !hit && held).collect();
    let mut each = locked.iter();
    hits.retain(|_| each.next() == Some(&false));
    let mut each = locked.iter();
    rows.extract_if(.., |_| each.next() == Some(&true)).collect()
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::engine::results::{Letters, Ways};
    use crate::engine::settlement::Cause;
    use crate::engine::tests::unanswered::{HOUR, TTL, acks};
    use crate::message::{FailureReason, fingerprint};

    fn dead(one: Settling) -> Settling {
        let cause = Cause {
            reason: FailureReason::Expired,
            error_kind: None,
            last_exception: None,
            note: None,
            fingerprint: fingerprint("q", None, "expired", ""),
        };
        *Box::new(one).ruled(Settlement::Dead(Box::new(cause)))
    }

    /// Those who write letters may wait for their table for hours.
    #[tokio::test(start_paused = true)]
    async fn a_letter_is_handed_over_and_given_back_where_there_is_no_room() {
        let ways = Ways::default();
        let mut later = Later::new(CancellationToken::new());
        later.letters = Some(Letters::of(&ways));
        let one = || Part::of(vec![dead(acks(&[0]).remove(0))]);
        assert!(matches!(hand_over(one(), &later), Then::Closed));
        let handed = ways[1].next().await.expect("it waits");
        assert!(handed.len() == 1 && handed[0].is_letter());
        for large in acks(&[20 << 20; 2]) {
            assert!(later.letters.as_ref().and_then(|letters| letters.take(large)).is_none());
        }
        let Then::GiveBack(rows) = hand_over(one(), &later) else { panic!("there is room") };
        assert!(rows.len() == 1 && matches!(rows[0].settlement, Settlement::Kept));
        // What is no letter after all is for this settler.
        let ack = Part::of(acks(&[0]));
        assert!(matches!(hand_over(ack, &later), Then::AtOnce(parts) if parts.len() == 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_letter_that_has_little_time_leaves_the_others_theirs() {
        let dead = |(at, one): (usize, Settling)| {
            let mut dead = dead(one);
            dead.until(Instant::now() + if at == 1 { TTL / 2 } else { HOUR });
            dead
        };
        let letters = acks(&[0; 3]).into_iter().enumerate().map(dead).collect();
        let parts: Vec<_> = in_parts(letters).iter().map(|part| part.rows.len()).collect();
        assert_eq!(parts, [1, 2]);
        assert_eq!(in_parts(acks(&[0; 3])).len(), 1);
    }
}
