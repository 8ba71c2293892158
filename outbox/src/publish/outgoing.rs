//! A message on its way to the table, with its options.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use super::{PublishError, Published, Publisher, QueueFor, Transaction};
use crate::error::BoxError;
use crate::message::headers::{CONTENT_TYPE, EXPIRES_IN, OF_REPLAYS, TEXTS};
use crate::message::{Codec, Headers, codec};
use crate::redacted::debug_only;
use crate::telemetry::Trace;

/// What to do when a live row of the queue already has the timer name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimerConflict {
    /// Write nothing; the result is `Duplicate`.
    #[default]
    Ignore,
    /// Move an unleased row to the new time if that is later, as the same delay given again
    /// is. It is a new message then:
    /// with the new payload and headers, published now, with no attempt and no delivery
    /// spent.
    Extend,
}

/// A message with its options, made by [`Publisher::message`] or by itself.
///
/// # Examples
/// ```no_run
/// # async fn remind(tx: &mut sqlx::PgTransaction<'_>) -> Result<(), outbox::PublishError> {
/// use std::time::Duration;
/// use outbox::Outgoing;
///
/// Outgoing::new("reminders", &7)
///     .header("tenant", "acme")
///     .timer_id("reminder-7")
///     .delay(Duration::from_secs(3600))
///     .publish(tx)
///     .await?;
/// # Ok(()) }
/// ```
///
/// `Debug` prints sizes and names, never the payload or a header value.
#[must_use = "a message is published by `.publish(&mut tx).await`"]
pub struct Outgoing {
    pub(super) queue: String,
    pub(super) payload: Result<Bytes, BoxError>,
    /// What the payload was written as, unless it came as bytes.
    pub(super) written: Option<&'static str>,
    /// Named by the caller, or by a codec, so a header must agree.
    pub(super) content_type: Option<Cow<'static, str>>,
    pub(super) correlation_id: Option<String>,
    pub(super) headers: Headers,
    pub(super) delay: Option<Duration>,
    pub(super) at: Option<SystemTime>,
    pub(super) expires_in: Option<Duration>,
    pub(super) timer_id: Option<String>,
    pub(super) conflict: Option<TimerConflict>,
    pub(super) publisher: Option<Publisher>,
    /// Of the span that it is published in: a collected message is written later.
    pub(super) trace: Option<Trace>,
    /// That of the publisher which collected it: another one writes it.
    pub(super) max_payload: Option<usize>,
}

debug_only!(message: Outgoing =>
    queue, payload_bytes = message.payload.as_ref().map(Bytes::len), headers, timer_id);

impl Outgoing {
    /// A value, as JSON. One that does not serialise fails when published. JSON has no
    /// infinity and no NaN: they arrive as `null`. What is nested more than 127 deep is
    /// published, and no handler can read it. Bytes become a list of numbers: for them take
    /// [`raw`](Self::raw).
    #[allow(clippy::needless_pass_by_value, reason = "a queue is named by a string of any kind")]
    pub fn new<B: Serialize + ?Sized>(queue: impl QueueFor<B>, body: &B) -> Self {
        let payload = codec::encode(body).map(Bytes::from).map_err(Into::into);
        Self::with(queue.name().to_owned(), payload, Some(codec::JSON))
    }

    /// A value in another encoding, with its content type; of a typed queue by
    /// [`Queue::encoded`](crate::Queue::encoded). A header of another content type, perhaps
    /// one of a message that is answered, is refused.
    pub fn encoded<C: Codec>(queue: impl Into<String>, body: &(impl Serialize + ?Sized)) -> Self {
        let payload = C::encode(body).map(Bytes::from);
        Self::with(queue.into(), payload, Some(C::CONTENT_TYPE)).content_type(C::CONTENT_TYPE)
    }

    /// Bytes as they are, without a content type unless one is named. A handler takes them as
    /// `&[u8]` or [`Bytes`].
    ///
    /// ```no_run
    /// use outbox::{Outgoing, subscriber};
    ///
    /// #[subscriber("files")]
    /// async fn keep(file: &[u8]) {
    ///     println!("{} bytes", file.len());
    /// }
    ///
    /// # async fn send(tx: &mut sqlx::PgTransaction<'_>) -> Result<(), outbox::PublishError> {
    /// Outgoing::raw("files", vec![0x50, 0x4b, 0x03, 0x04]).publish(tx).await?;
    /// # Ok(()) }
    /// ```
    pub fn raw(queue: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        Self::with(queue.into(), Ok(payload.into()), None)
    }

    fn with(
        queue: String,
        payload: Result<Bytes, BoxError>,
        written: Option<&'static str>,
    ) -> Self {
        Self {
            queue,
            payload,
            written,
            content_type: None,
            correlation_id: None,
            headers: Headers::new(),
            delay: None,
            at: None,
            expires_in: None,
            timer_id: None,
            conflict: None,
            publisher: None,
            trace: None,
            max_payload: None,
        }
    }

    /// Sets one header; the last value of a name counts.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// Sets several headers, such as those of the message that is answered. What tells of
    /// that one's replays is left out: this one had none. So is its
    /// [time](Self::expires_in), its content type if this one's payload is a value of
    /// [`new`](Self::new), and a content type or correlation id that is no text.
    pub fn headers(mut self, headers: &Headers) -> Self {
        // Whether or not it is named, and before or after this. Of what a codec wrote another
        // type is refused.
        let has_type = self.written == Some(codec::JSON);
        let leaves = |name| {
            OF_REPLAYS.contains(&name) || name == EXPIRES_IN || has_type && name == CONTENT_TYPE
        };
        for (name, value) in headers.iter().filter(|(name, _)| !leaves(name)) {
            if value.is_string() || !TEXTS.contains(&name) {
                self.headers.insert(name, value.clone());
            }
        }
        self
    }

    /// What ties the messages of one piece of work together; if absent, the tracking id
    /// of the message that it begins with.
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    /// With the span that it is published in.
    pub(super) fn traced(self, trace: Option<Trace>) -> Self {
        Self { trace, ..self }
    }

    /// Refused when it is prepared, if its payload is larger.
    pub(super) fn limited(self, max_payload: usize) -> Self {
        Self { max_payload: Some(max_payload), ..self }
    }

    /// Bytes of the payload; none when it does not serialise.
    pub(super) fn size(&self) -> usize {
        self.payload.as_ref().map_or(0, Bytes::len)
    }

    /// Says how the payload is encoded: `text/…` is read as text, MessagePack and CBOR with their
    /// features, everything else as JSON. Python services know `text/plain` and what begins with
    /// `application/json` only. A value is encoded already: what is read otherwise than
    /// [`new`](Self::new) or [`encoded`](Self::encoded) wrote it is refused.
    pub fn content_type(mut self, content_type: impl Into<Cow<'static, str>>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// Due this long after the call, by the database's clock; at most ten years. That of a
    /// [collected](Publisher::collect) or returned message counts from the ack.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Due at this time; at once if it is over.
    pub fn at(mut self, time: SystemTime) -> Self {
        self.at = Some(time);
        self
    }

    /// Not started within this time, the message ends as `expired` instead of
    /// being handled: a dead letter, or deleted without a table for them. It counts from the
    /// call, for a collected or returned message from the ack, in milliseconds, by the
    /// database's clock, and holds for retries too. With a [`delay`](Self::delay) it has to be
    /// longer than that.
    pub fn expires_in(mut self, limit: Duration) -> Self {
        self.expires_in = Some(limit);
        self
    }

    /// At most one live row of the queue has this name; it is free again when
    /// the row was handled. It is no idempotency key for ever.
    ///
    /// A handler that sets the timer again on which it runs
    /// [collects](Publisher::collect) or returns the message: until the ack its own row has
    /// the name, and a publish in a transaction comes to nothing
    /// ([`Published::Duplicate`]; in a [`Tx`](crate::Tx), but for a savepoint of it,
    /// [`PublishError::OwnTimer`]).
    pub fn timer_id(mut self, name: impl Into<String>) -> Self {
        self.timer_id = Some(name.into());
        self
    }

    /// What to do when the timer name is taken.
    pub fn on_conflict(mut self, conflict: TimerConflict) -> Self {
        self.conflict = Some(conflict);
        self
    }

    /// Publishes it in the caller's transaction: through the publisher that made
    /// it, or through [`Publisher::from_env`].
    ///
    /// # Errors
    /// As [`publish`](crate::publish).
    ///
    /// # Cancel safety
    /// As [`publish`](crate::publish).
    pub async fn publish<T: Transaction + ?Sized>(
        mut self,
        tx: &mut T,
    ) -> Result<Published, PublishError> {
        match self.publisher.take() {
            Some(publisher) => publisher.send(tx, self).await,
            None => Publisher::of_process()?.send(tx, self).await,
        }
    }
}
