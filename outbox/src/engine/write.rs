//! Settlements of one kind, tried until they are written or their leases are over.

use std::collections::{BTreeMap, VecDeque};

use tokio::time::{Instant, sleep, timeout_at};
use tracing::{error, warn};

use super::backoff::Backoff;
use super::closing::Written;
use super::later::Later;
use super::lease::kind;
use super::settlement::Settlement;
use super::settling::Settling;
use crate::error::StoreError;
use crate::publish::Tally;
use crate::store::{Death, Extend, Handled, Landed, Lease, Release, Retry, Store, new_alone_token};
use crate::telemetry::TARGET;

/// Of one statement.
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

/// Letters are apart that have much less time than others: an answer for which the first
/// cannot wait any more would be too late for all.
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

/// Writes them, and returns how many landed. What passes by itself is tried again until the
/// leases are over, or nothing is written any more; in halves if there was no answer, because
/// there may never be one to so large a statement. Rows that somebody else has locked are left
/// to `later`, and so is one that had no answer by itself. What the database refuses for good is
/// tried row by row, so that one bad row does not keep the others, and then left where it is; one
/// whose letter cannot be written, or not in time, is given back.
pub(super) async fn write<S: Store>(store: &S, group: Vec<Settling>, later: &mut Later) -> usize {
    let mut backoff = Backoff::of_errors();
    let (mut parts, mut landed, mut tried) = (VecDeque::from(in_parts(group)), 0, false);
    let mut kept = Vec::new();
    loop {
        let urgent = |one: &Settling| parts.is_empty() || one.is_urgent(Instant::now());
        if kept.iter().any(urgent) {
            given_back(std::mem::take(&mut kept)).for_each(|part| parts.push_front(part));
        }
        let Some(mut part) = parts.pop_front() else { break };
        // While others of them were tried, it became late for these.
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
        let Some(sent) = later.unless_over(in_time(store, &part.rows)).await else {
            part.rows.iter_mut().for_each(|one| one.unanswered = true);
            parts.push_front(part);
            continue;
        };
        match sent {
            Ok(mut hits) => {
                let passed_by = passed_by(store, &mut part.rows, &mut hits);
                let locked = later.unless_over(passed_by).await.unwrap_or_default();
                if !locked.is_empty() {
                    later.add(locked);
                }
                landed += close(store, &part.rows, &hits);
                backoff.reset();
            }
            Err(failed) if failed.transient => {
                let rows = part.rows.len();
                let subscriber = part.rows[0].reader.subscriber.name();
                let again = rows == 1 && part.rows[0].unanswered && failed.perhaps_done;
                for one in &mut part.rows {
                    one.unanswered |= failed.perhaps_done;
                }
                let late = give_up_late(&mut part.rows, false);
                given_back(late).for_each(|part| parts.push_front(part));
                warn!(
                    target: TARGET, subscriber, error = %failed, rows,
                    "settling failed; trying again"
                );
                // Behind the other parts, which it is not to hold up; all of them pause first,
                // because what is in its way may be in theirs.
                if again {
                    // There may never be an answer to it, and its lease may be long.
                    later.add(part.rows);
                } else {
                    let again = divide(store, part, &failed, later).await;
                    parts.extend(again.into_iter().filter(|part| !part.rows.is_empty()));
                }
                if !parts.is_empty() {
                    later.unless_over(sleep(backoff.after(true))).await;
                }
            }
            Err(_) if part.rows.len() > 1 => {
                let each = part.rows.into_iter().rev();
                each.for_each(|one| parts.push_front(Part::of(vec![one])));
            }
            Err(refused) => {
                error!(
                    target: TARGET, error = %refused, row_id = part.rows[0].lease.id,
                    "a settlement was refused; if nothing else of it can be written, the row \
                     stays and comes back after its lease"
                );
                if part.rows[0].keep() {
                    kept.append(&mut part.rows);
                } else if part.rows[0].refuse(&refused) {
                    parts.push_front(part);
                } else {
                    let one = &part.rows[0];
                    one.close(if one.unanswered { Written::Unknown } else { Written::Lost }, false);
                }
            }
        }
    }
    landed
}

/// Those whose letters cannot be written, a statement each kind.
fn given_back(kept: Vec<Settling>) -> impl Iterator<Item = Part> {
    let condemned = |one: &Settling| matches!(one.settlement, Settlement::Condemned);
    let (condemned, others): (Vec<_>, Vec<_>) = kept.into_iter().partition(condemned);
    [condemned, others].into_iter().filter(|rows| !rows.is_empty()).map(Part::of)
}

/// What to try again, after a failure that may pass.
async fn divide<S: Store>(
    store: &S,
    part: Part,
    failed: &StoreError,
    later: &mut Later,
) -> [Part; 2] {
    let Part { mut rows, refused } = part;
    let mut whole = !failed.perhaps_done;
    let free = if whole { later.unless_over(free(store, &rows)).await.flatten() } else { None };
    // Such a server may never have enough time for so many.
    whole &= free.is_some() || !failed.took_too_long;
    if let Some(free) = free {
        let mut free = free.into_iter();
        let (free, locked): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|_| free.next().unwrap_or_default());
        if free.is_empty() || !locked.is_empty() {
            later.add(locked);
            return [Part::of(free), Part::of(Vec::new())];
        }
        rows = free;
        // It may have been a deadlock, or a lock that is gone. Or it is no lock of a row.
        if rows.len() == 1 && (refused || rows[0].sets_timers()) {
            later.add(std::mem::take(&mut rows));
        }
        whole = !refused;
        if whole {
            return [Part { rows, refused: true }, Part::of(Vec::new())];
        }
    }
    let half = if whole { 0 } else { rows.len() / 2 };
    let rest = rows.split_off(half);
    [Part { rows, refused }, Part { rows: rest, refused }]
}

/// Which of them nobody else has locked; `None` where the database does not tell. It is
/// told by their leases, which are extended. What is gone keeps nobody waiting: the next try
/// finds out.
pub(super) async fn free<S: Store>(store: &S, rows: &[Settling]) -> Option<Landed> {
    let same = |one: &Settling| Extend { lease: one.lease, token: one.lease.token };
    let mut free = store.extend(&rows.iter().map(same).collect::<Vec<_>>()).await.ok()?;
    if free.contains(&false) {
        let leases: Vec<Lease> = rows.iter().map(|one| one.lease).collect();
        let held = store.held(&leases).await.ok()?;
        free.iter_mut().zip(held).for_each(|(free, held)| *free |= !held);
    }
    Some(free)
}

/// Tells what became of each.
fn close<S: Store>(store: &S, part: &[Settling], landed: &[bool]) -> usize {
    for (settling, &hit) in part.iter().zip(landed) {
        let written = match (hit, settling.unanswered) {
            (true, _) => Written::Landed,
            (false, false) => Written::Lost,
            (false, true) => Written::Unknown,
        };
        settling.close(written, store.keeps_dead_letters());
        if hit {
            settling.announce();
        }
    }
    let written = |(settling, hit): &(&Settling, &bool)| {
        **hit && !matches!(settling.settlement, Settlement::Kept | Settlement::Condemned)
    };
    part.iter().zip(landed).filter(written).count()
}

/// Leaves those whose time is over to another claim, or all of them. Returns those that are to
/// be given back instead, because their letters were not written in time.
pub(super) fn give_up_late(rows: &mut Vec<Settling>, all: bool) -> Vec<Settling> {
    let now = Instant::now();
    let mut kept = Vec::new();
    for mut settling in rows.extract_if(.., |settling| all || settling.is_late(now)) {
        if !all && settling.keep() {
            kept.push(settling);
            continue;
        }
        let unknown = settling.unanswered;
        settling.close(if unknown { Written::Unknown } else { Written::Lost }, false);
    }
    kept
}

/// Those that were not leased on because somebody has their rows locked: an unleased one would
/// run.
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

/// Letters have no more time than leaves some for giving their rows back: where their table is
/// locked, an answer may take longer than a lease.
async fn in_time<S: Store>(store: &S, group: &[Settling]) -> Result<Landed, StoreError> {
    let now = Instant::now();
    match group.iter().filter_map(|one| one.letter_until(now)).min() {
        None => send(store, group).await,
        Some(until) => timeout_at(until, send(store, group))
            .await
            .unwrap_or_else(|_| Err(StoreError::new("bury", "no answer while leases last", true))),
    }
}

async fn send<S: Store>(store: &S, group: &[Settling]) -> Result<Landed, StoreError> {
    match &group[0].settlement {
        Settlement::Ack { messages } if !messages.is_empty() => {
            let acks: Vec<Handled<'_>> = group.iter().filter_map(Settling::as_handled).collect();
            let mut tally = Tally::begin();
            let (landed, inserted) = store.ack_publishing(&acks).await?;
            for (handled, _) in acks.iter().zip(&landed).filter(|&(_, &hit)| hit) {
                handled.messages.iter().for_each(|message| tally.add(message, 0));
            }
            for (queue, rows) in &inserted {
                tally.rows(queue, *rows, 0);
            }
            tally.tell(group[0].reader.teller.sinks());
            Ok(landed)
        }
        Settlement::Ack { .. } => {
            let leases: Vec<Lease> = group.iter().map(|one| one.lease).collect();
            store.ack(&leases).await
        }
        Settlement::Retry { .. } => {
            let retries: Vec<Retry> = group.iter().filter_map(Settling::as_retry).collect();
            store.retry(&retries).await
        }
        Settlement::Dead(_) => {
            let deaths: Vec<Death<'_>> = group.iter().filter_map(Settling::as_death).collect();
            store.bury(&deaths).await
        }
        Settlement::Condemned => {
            // Given back it would not tell that it brought its process down, and would run.
            let guilty = |one: &Settling| Extend { lease: one.lease, token: new_alone_token() };
            store.extend(&group.iter().map(guilty).collect::<Vec<_>>()).await
        }
        Settlement::Release { .. } | Settlement::Kept | Settlement::Abandon | Settlement::Lost => {
            let releases: Vec<Release> = group.iter().map(Settling::as_release).collect();
            store.release(&releases).await
        }
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::engine::settlement::Cause;
    use crate::engine::tests::unanswered::{HOUR, TTL, acks};
    use crate::message::{FailureReason, fingerprint};

    #[tokio::test(start_paused = true)]
    async fn a_letter_that_has_little_time_leaves_the_others_theirs() {
        let dead = |(at, one): (usize, Settling)| {
            let cause = Cause {
                reason: FailureReason::Expired,
                error_kind: None,
                last_exception: None,
                note: None,
                fingerprint: fingerprint("q", None, "expired", ""),
            };
            let mut dead = *Box::new(one).ruled(Settlement::Dead(Box::new(cause)));
            dead.until(Instant::now() + if at == 1 { TTL / 2 } else { HOUR });
            dead
        };
        let letters = acks(&[0; 3]).into_iter().enumerate().map(dead).collect();
        let parts: Vec<_> = in_parts(letters).iter().map(|part| part.rows.len()).collect();
        assert_eq!(parts, [1, 2]);
        assert_eq!(in_parts(acks(&[0; 3])).len(), 1);
    }
}
