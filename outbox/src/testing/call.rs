//! What a test sees of the runs of handlers.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::message::{FailureReason, Headers};

/// One run of a handler.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Call {
    /// The subscriber that ran.
    pub subscriber: &'static str,
    /// Identity of the row.
    pub id: i64,
    /// The queue it was published to.
    pub queue: String,
    /// The bytes as published.
    pub payload: Bytes,
    /// The headers.
    pub headers: Headers,
    /// Claims so far, this one included, without those given back unstarted, snoozed or
    /// put off.
    pub deliveries: u64,
    /// Failed runs before this one.
    pub attempts: u64,
    /// When it ran, on the broker's clock.
    pub at: SystemTime,
    /// What came of it.
    pub ending: Ending,
    /// The kind of the handler's error, as a dead letter would have it: `panic`, `decode`, the name
    /// of its type. In a simulation not that of a panic or a timeout; otherwise none under `AckFirst`.
    pub error_kind: Option<String>,
}

/// What a run of a handler came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The row is deleted.
    Acked,
    /// The row is due again after this long, an attempt spent.
    Retried(Duration),
    /// The row is gone for good, into the dead letters if they are kept.
    Terminal(FailureReason),
    /// The row is due again after this long, nothing spent.
    Snoozed(Duration),
    /// Nothing was written: the test made the process die, the lease was lost,
    /// or the dead letters are broken.
    Unwritten,
}

impl Call {
    /// The payload as a value.
    ///
    /// # Errors
    /// When it is not the expected JSON.
    pub fn json<T: DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_slice(&self.payload)
    }
}
