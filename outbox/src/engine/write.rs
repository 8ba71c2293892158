//! Settlements of one kind, tried until they are written or their leases are over.

use std::collections::VecDeque;

use tokio::time::{Instant, sleep};
use tracing::{error, warn};

use super::backoff::Backoff;
use super::settle::{Settlement, Settling, Written};
use crate::error::StoreError;
use crate::publish::Tally;
use crate::store::{Death, Handled, Landed, Lease, Release, Retry, Store};
use crate::telemetry::TARGET;

/// Writes them, and returns how many landed. What passes by itself is tried again until
/// the leases are over; in halves if there was no answer, because there may never be one
/// to so large a statement. What the database refuses is tried row by row, so that one bad
/// row does not keep the others, and then left where it is.
pub(super) async fn write<S: Store>(store: &S, group: Vec<Settling>) -> usize {
    let mut backoff = Backoff::of_errors();
    let (mut parts, mut landed) = (VecDeque::from([group]), 0);
    while let Some(mut part) = parts.pop_front() {
        match send(store, &part).await {
            Ok(hits) => {
                landed += close(store, &part, &hits);
                backoff.reset();
            }
            Err(failed) if failed.transient => {
                warn!(target: TARGET, error = %failed, rows = part.len(), "settling failed; trying again");
                give_up_late(&mut part, failed.perhaps_done);
                let half = if failed.perhaps_done { part.len() / 2 } else { 0 };
                let rest = part.split_off(half);
                // Behind the others: what one of them waits for need not be in their way. But
                // they wait too, because it may.
                parts.extend([part, rest].into_iter().filter(|part| !part.is_empty()));
                if !parts.is_empty() {
                    sleep(backoff.after(true)).await;
                }
            }
            Err(_) if part.len() > 1 => {
                part.into_iter().rev().for_each(|one| parts.push_front(vec![one]));
            }
            Err(refused) => {
                error!(
                    target: TARGET, error = %refused, row_id = part[0].lease.id,
                    "a settlement was refused; the row stays and comes back when its lease runs out"
                );
                part[0].close(Written::Lost, false);
            }
        }
    }
    landed
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
    landed.iter().filter(|hit| **hit).count()
}

/// Leaves those whose time is over to another claim.
fn give_up_late(part: &mut Vec<Settling>, perhaps_done: bool) {
    let now = Instant::now();
    part.retain_mut(|settling| {
        settling.unanswered |= perhaps_done;
        let over = now >= settling.deadline;
        if over {
            settling.close(Written::Unknown, false);
        }
        !over
    });
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
        Settlement::Dead { .. } => {
            let deaths: Vec<Death> = group.iter().filter_map(Settling::as_death).collect();
            store.bury(&deaths).await
        }
        Settlement::Release { .. } | Settlement::Abandon | Settlement::Lost => {
            let releases: Vec<Release> = group.iter().map(Settling::as_release).collect();
            store.release(&releases).await
        }
    }
}
