//! Sends settlements of one kind as one statement of the store. Dead letters have limited time for
//! that, because their rows may still have to be given back.

use tokio::time::{Instant, timeout_at};

use super::settlement::Settlement;
use super::settling::Settling;
use crate::error::StoreError;
use crate::publish::Tally;
use crate::store::{
    Death, Extend, Handled, Landed, Lease, Release, Retry, Store, is_alone, new_alone_token,
};

/// Sends a group. Dead letters have only so much time that their rows can still be given back:
/// where their table is locked, an answer may take longer than a lease.
pub(super) async fn in_time<S: Store>(store: &S, group: &[Settling]) -> Result<Landed, StoreError> {
    let now = Instant::now();
    match group.iter().filter_map(|one| one.letter_until(now)).min() {
        None => send(store, group).await,
        Some(until) => timeout_at(until, send(store, group))
            .await
            .unwrap_or_else(|_| Err(StoreError::new("bury", "no answer while leases last", true))),
    }
}

async fn send<S: Store>(store: &S, group: &[Settling]) -> Result<Landed, StoreError> {
    // If a crash of the server undid it, the row would be found under its mark, and be condemned.
    let durable = group.iter().any(|one| is_alone(one.lease.token)).then(|| store.durable());
    let store = durable.as_ref().unwrap_or(store);
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
            // Given back, the row would not show that it brought its process down, and would run.
            let guilty = |one: &Settling| Extend { lease: one.lease, token: new_alone_token() };
            store.extend(&group.iter().map(guilty).collect::<Vec<_>>()).await
        }
        Settlement::Release { .. } | Settlement::Kept | Settlement::Abandon => {
            let releases: Vec<Release> = group.iter().map(Settling::as_release).collect();
            store.release(&releases).await
        }
        // Closed before it gets here: the row is another claim's.
        Settlement::Lost => Ok(vec![false; group.len()]),
    }
}
