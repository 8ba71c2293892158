//! The runs of handlers, as a test sees them.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::message::{FailureReason, Headers, Row};

/// One run of a handler.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Call {
    /// The subscriber that ran.
    pub subscriber: &'static str,
    /// The id of the row.
    pub id: i64,
    /// The queue the message was published to.
    pub queue: String,
    /// The bytes as published.
    pub payload: Bytes,
    /// The headers.
    pub headers: Headers,
    /// How often the row had been claimed, this claim included. Claims that were given back
    /// unstarted, snoozed or put off do not count.
    pub deliveries: u64,
    /// Failed runs before this one.
    pub attempts: u64,
    /// When the handler ran, on the broker's clock.
    pub at: SystemTime,
    /// What came of the run.
    pub ending: Ending,
    /// The kind of the handler's error, as a dead letter would have it: `panic`, `decode`, the name
    /// of its type. A simulation has no kind for a panic or a timeout. Outside of a simulation
    /// there is none under `AckFirst`.
    pub error_kind: Option<String>,
}

/// What a run of a handler came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The row is deleted.
    Acked,
    /// The row is due again after this long. An attempt is spent.
    Retried(Duration),
    /// The row is gone for good. It is a dead letter now if dead letters are kept.
    Terminal(FailureReason),
    /// The row is due again after this long. Nothing is spent.
    Snoozed(Duration),
    /// Nothing was written: the process died, the lease was lost, or dead letters cannot be
    /// written.
    Unwritten,
}

impl Call {
    /// A run that is about to begin, and will have acked its row if nothing else is noted.
    pub(super) fn of(
        subscriber: &'static str,
        row: &Row,
        headers: Headers,
        at: SystemTime,
    ) -> Self {
        Self {
            subscriber,
            id: row.id,
            queue: row.queue.clone(),
            payload: row.payload.clone(),
            headers,
            deliveries: row.deliveries_count,
            attempts: row.attempts_count,
            at,
            ending: Ending::Acked,
            error_kind: None,
        }
    }

    /// Decodes the payload as JSON.
    ///
    /// # Errors
    /// Fails if the payload is not the expected JSON.
    pub fn json<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.payload)
    }
}
