//! Every check that keeps a message from aborting the caller's transaction.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde_json::Value;
use uuid::Uuid;

use super::{Outgoing, PublishError, TimerConflict};
use crate::message::headers::{CONTENT_TYPE, CORRELATION_ID, EXPIRES_IN, TEXTS, Text};
use crate::message::{Headers, codec};
use crate::redacted::debug_only;
use crate::tracking::Trail;

/// Length of the columns `queue` and `timer_id`, in characters.
pub(crate) const MAX_NAME_CHARS: usize = 255;
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

/// Bytes for the times of a message, and for all lengths, in the arrays of a batch.
const EACH: usize = 64;

impl Prepared {
    pub(crate) fn bytes(&self) -> usize {
        self.payload.len() + self.headers.len()
    }

    /// Its queue, and its name if it is a timer.
    pub(crate) fn named(&self) -> (&str, Option<&str>) {
        (&self.queue, self.timer_id.as_deref())
    }

    /// About what it takes to send it.
    pub(super) fn sent_bytes(&self) -> usize {
        let names = self.queue.len() + self.timer_id.as_ref().map_or(0, String::len);
        self.bytes() + names + EACH
    }
}

debug_only!(prepared: Prepared => queue, payload_bytes = prepared.payload.len());

/// When a message is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Now,
    In(Duration),
    At(SystemTime),
}

impl Outgoing {
    pub(super) fn prepare(
        mut self,
        max_payload: usize,
        trail: &Trail,
        id: Uuid,
    ) -> Result<Prepared, PublishError> {
        trail.takes_back(&mut self.headers);
        if self.has_copied_id && self.correlation_id.is_some() {
            self.headers.remove(CORRELATION_ID);
        }
        if self.has_copied_type && self.written.is_none() && self.content_type.is_some() {
            self.headers.remove(CONTENT_TYPE);
        }
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
        // In milliseconds, as the header has it.
        let limit =
            self.expires_in.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        if let (delay, Some(limit)) =
            (self.delay.unwrap_or_default(), limit.map(Duration::from_millis))
            && limit <= delay
        {
            return Err(PublishError::ExpiresUndue { delay, limit });
        }
        if self.conflict.is_some() && self.timer_id.is_none() {
            return Err(PublishError::ConflictWithoutTimer);
        }
        let headers = &self.headers;
        let is_no_text = |name: &&str| headers.value(name).is_some_and(|value| !value.is_string());
        if let Some(name) = TEXTS.into_iter().find(is_no_text) {
            return Err(PublishError::HeaderNotText(name));
        }
        if headers
            .value(EXPIRES_IN)
            .is_some_and(|it| it.as_str().is_none_or(|it| it.parse::<u64>().is_err()))
        {
            return Err(PublishError::HeaderNotMillis(EXPIRES_IN));
        }
        let mut text = Text::of(headers);
        let named = self.content_type.as_deref();
        if let (Some(written), Some(named)) = (self.written, named)
            && !codec::are_read_alike(written, named)
        {
            let (written, named) = (written.to_owned(), named.to_owned());
            return Err(PublishError::ContentType { written, named });
        }
        // A header may replace the type that `new` assumed, not one that was named.
        if named.is_some() || headers.value(CONTENT_TYPE).is_none() {
            agree(headers, &mut text, CONTENT_TYPE, named.or(self.written))?;
        } else if let (Some(written), Some(header)) = (self.written, headers.content_type())
            && !codec::are_read_alike(written, header)
        {
            return Err(PublishError::HeaderConflict(CONTENT_TYPE));
        }
        agree(headers, &mut text, CORRELATION_ID, self.correlation_id.as_deref())?;
        if self.correlation_id.is_none() && headers.value(CORRELATION_ID).is_none() {
            let inherited = trail.correlation_id();
            // A piece of work is named by the message that it begins with.
            let own = &mut Uuid::encode_buffer();
            text.push(CORRELATION_ID, inherited.unwrap_or(id.hyphenated().encode_lower(own)));
        }
        if let Some(limit) = limit {
            agree(headers, &mut text, EXPIRES_IN, Some(&limit.to_string()))?;
        }
        trail.sign(headers, &mut text, id, self.trace.as_ref());
        let headers = text.end()?;
        let payload = self.payload.map_err(PublishError::Encode)?;
        if payload.len() > max_payload {
            return Err(PublishError::PayloadTooLarge { bytes: payload.len(), max: max_payload });
        }
        Ok(Prepared {
            queue: self.queue,
            payload,
            headers,
            due,
            timer_id: self.timer_id,
            extend: self.conflict == Some(TimerConflict::Extend),
        })
    }
}

/// The ids of messages that are published together. The first is drawn, and the others count on
/// from it (RFC 9562, section 6.2, method 2), because each draw is a call of the operating
/// system.
pub(super) fn ids() -> impl Iterator<Item = Uuid> {
    const COUNTED: u128 = (1 << 62) - 1;
    let first = Uuid::now_v7().as_u128();
    (0..).map(move |n| Uuid::from_u128(first & !COUNTED | first.wrapping_add(n) & COUNTED))
}

/// Adds an option to the headers, unless a header says it already.
fn agree(
    headers: &Headers,
    text: &mut Text,
    name: &'static str,
    option: Option<&str>,
) -> Result<(), PublishError> {
    let Some(option) = option else { return Ok(()) };
    match headers.value(name) {
        Some(Value::String(header)) if *header == option => Ok(()),
        Some(_) => Err(PublishError::HeaderConflict(name)),
        None => {
            text.push(name, option);
            Ok(())
        }
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::ids;

    #[test]
    fn ids_drawn_together_are_each_one_of_their_own() {
        let drawn: HashSet<_> = ids().take(2000).chain(ids().take(2000)).collect();
        assert_eq!(drawn.len(), 4000);
        assert!(
            drawn
                .iter()
                .all(|id| id.get_version_num() == 7 && id.get_variant() == uuid::Variant::RFC4122)
        );
    }
}
