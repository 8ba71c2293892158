//! Every check that keeps a message from aborting the caller's transaction.

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde_json::Value;
use uuid::Uuid;

use super::{Outgoing, PublishError, TimerConflict};
use crate::message::headers::{CONTENT_TYPE, CORRELATION_ID, EXPIRES_IN};
use crate::tracking::Trail;

/// Length of the columns `queue` and `timer_id`, in characters.
const MAX_NAME_CHARS: usize = 255;
/// The last second of the year 9999.
const LAST_SECOND: Duration = Duration::from_secs(253_402_300_799);

/// A message that the databases accept.
///
/// `Debug` prints sizes.
#[derive(Clone)]
pub struct Prepared {
    pub(crate) queue: String,
    pub(crate) payload: Bytes,
    /// A JSON object.
    pub(crate) headers: String,
    pub(crate) due: Due,
    pub(crate) timer_id: Option<String>,
    pub(crate) extend: bool,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared")
            .field("queue", &self.queue)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// When a message is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Now,
    In(Duration),
    At(SystemTime),
}

impl Outgoing {
    pub(super) fn prepare(
        self,
        max_payload: usize,
        trail: &Trail,
    ) -> Result<Prepared, PublishError> {
        check_name("queue", &self.queue)?;
        if let Some(timer_id) = &self.timer_id {
            check_name("timer", timer_id)?;
        }
        let due = match (self.delay, self.at) {
            (Some(_), Some(_)) => return Err(PublishError::DelayAndTime),
            (Some(delay), None) => Due::In(delay),
            (None, Some(time)) => Due::At(within_range(time)?),
            (None, None) => Due::Now,
        };
        if self.conflict.is_some() && self.timer_id.is_none() {
            return Err(PublishError::ConflictWithoutTimer);
        }
        let mut headers = self.headers;
        let content_type = self.content_type.map(String::from);
        // A header may replace the type that `new` assumed, not one that was named.
        if self.content_type_given || headers.value(CONTENT_TYPE).is_none() {
            agree(&mut headers, CONTENT_TYPE, content_type)?;
        }
        agree(&mut headers, CORRELATION_ID, self.correlation_id)?;
        if headers.value(CORRELATION_ID).is_none() {
            let inherited = trail.correlation_id().map(str::to_owned);
            let id = inherited.unwrap_or_else(|| Uuid::new_v4().to_string());
            headers.insert(CORRELATION_ID, id);
        }
        if let Some(limit) = self.expires_in {
            let limit = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
            agree(&mut headers, EXPIRES_IN, Some(limit.to_string()))?;
        }
        trail.sign(&mut headers, self.trace.as_ref());
        for (name, value) in headers.iter() {
            if name.contains('\0') || holds_nul(value) {
                return Err(PublishError::Nul("header"));
            }
        }
        let payload = self.payload.map_err(PublishError::Encode)?;
        if payload.len() > max_payload {
            return Err(PublishError::PayloadTooLarge { bytes: payload.len(), max: max_payload });
        }
        Ok(Prepared {
            queue: self.queue,
            payload,
            headers: headers.to_json(),
            due,
            timer_id: self.timer_id,
            extend: self.conflict == Some(TimerConflict::Extend),
        })
    }
}

/// Puts an option into the headers, unless a header says otherwise.
fn agree(
    headers: &mut crate::message::Headers,
    name: &'static str,
    option: Option<String>,
) -> Result<(), PublishError> {
    let Some(option) = option else { return Ok(()) };
    match headers.value(name) {
        Some(Value::String(header)) if *header == option => Ok(()),
        Some(_) => Err(PublishError::HeaderConflict(name)),
        None => {
            headers.insert(name, option);
            Ok(())
        }
    }
}

fn holds_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(holds_nul),
        Value::Object(map) => {
            map.iter().any(|(name, value)| name.contains('\0') || holds_nul(value))
        }
        _ => false,
    }
}

fn within_range(time: SystemTime) -> Result<SystemTime, PublishError> {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) if since > LAST_SECOND => Err(PublishError::TimeOutOfRange(time)),
        Ok(_) => Ok(time),
        Err(_) => Ok(SystemTime::UNIX_EPOCH),
    }
}

/// Refuses a queue or timer name that its column cannot hold.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<(), PublishError> {
    let chars = name.chars().count();
    if name.is_empty() {
        Err(PublishError::EmptyName(what))
    } else if chars > MAX_NAME_CHARS {
        Err(PublishError::LongName { what, chars })
    } else if name.contains('\0') {
        Err(PublishError::Nul(what))
    } else {
        Ok(())
    }
}
