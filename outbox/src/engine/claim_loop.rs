//! One subscriber's claims: when to look, how many rows to take.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::backoff::Backoff;
use super::inbox::Job;
use super::settle::Settling;
use super::{Reader, Shared};
use crate::error::StoreError;
use crate::store::{Claim, Claimed, Store, new_token};
use crate::telemetry::{self, TARGET};

/// Claims until `stop`, then closes the inbox and gives back what nobody has
/// started. A claim under way is waited for: its rows would stay leased.
pub(super) async fn run<S: Store>(
    shared: Arc<Shared<S>>,
    reader: Arc<Reader>,
    settlements: mpsc::Sender<Settling>,
    stop: CancellationToken,
) {
    let options = &reader.subscriber.options;
    let mut polls = Backoff::new(options.min_poll, options.max_poll);
    let mut errors = Backoff::of_errors();
    while let Some(limit) = stop.run_until_cancelled(reader.inbox.room()).await {
        // Before the claim, so that a wake during it makes for another one.
        reader.signal.clear().await;
        let claimed_at = Instant::now();
        let pause = match claim(&shared, &reader, limit).await {
            Ok(rows) => {
                errors.reset();
                let count = rows.len();
                if count > 0 {
                    polls.reset();
                }
                reader.inbox.push(jobs(rows, claimed_at, claimed_at + options.lease_ttl));
                if count == limit {
                    continue;
                }
                look_ahead(&shared, &reader).await;
                polls.next()
            }
            Err(failed) => {
                error!(
                    target: TARGET, subscriber = reader.subscriber.name(), error = %failed,
                    "claiming failed; trying again"
                );
                sleep_or_stop(&stop, errors.next()).await;
                continue;
            }
        };
        let woken = stop.run_until_cancelled(reader.signal.sleep(Instant::now() + pause)).await;
        if woken == Some(true) {
            polls.reset();
        }
    }
    for job in reader.inbox.close() {
        drop(settlements.send(Settling::unstarted(&reader, &job)).await);
    }
}

async fn claim<S: Store>(
    shared: &Shared<S>,
    reader: &Reader,
    limit: usize,
) -> Result<Vec<Claimed>, StoreError> {
    let claim = Claim {
        queues: reader.subscriber.shared_queues(),
        limit,
        lease_ttl: reader.subscriber.options.lease_ttl,
        token: new_token(),
    };
    let result = shared.store.claim(&claim).await;
    match &result {
        Ok(rows) => {
            let first = claim.queues.first().map_or("", String::as_str);
            telemetry::fetched(first, reader.subscriber.name(), rows.len());
        }
        // The rows may be leased all the same: nobody else knows the token.
        Err(failed) if failed.transient => {
            if let Err(again) = shared.store.abandon(&claim).await {
                error!(target: TARGET, error = %again, "a lost claim stays until its lease runs out");
            }
        }
        Err(_) => {}
    }
    result
}

fn jobs(rows: Vec<Claimed>, claimed_at: Instant, deadline: Instant) -> Vec<Job> {
    rows.into_iter().map(|claimed| Job { claimed, claimed_at, deadline }).collect()
}

/// Sets the alarm for the next row that becomes due. Without an answer the poll
/// finds it.
async fn look_ahead<S: Store>(shared: &Shared<S>, reader: &Reader) {
    let Reader { subscriber, signal, .. } = reader;
    match shared.store.next_due(subscriber.queues(), subscriber.options.lease_ttl).await {
        Ok(Some(wait)) => {
            if let Some(at) = Instant::now().checked_add(wait) {
                signal.due_at(at);
            }
        }
        Ok(None) => {}
        Err(error) => error!(
            target: TARGET, subscriber = subscriber.name(), %error, "the next due time is unknown"
        ),
    }
}

async fn sleep_or_stop(stop: &CancellationToken, pause: std::time::Duration) {
    stop.run_until_cancelled(sleep(pause)).await;
}
