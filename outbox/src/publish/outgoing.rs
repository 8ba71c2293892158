//! A message on its way to the table, with its options.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::Serialize;
use serde_json::Value;

use super::{PublishError, Published, Publisher, QueueFor, Transaction};
use crate::error::BoxError;
use crate::message::headers::{
    CONTENT_TYPE, CORRELATION_ID, EXPIRES_IN, OF_REPLAYS, TEXTS, TRACKING_IDS,
};
use crate::message::{Codec, Headers, codec};
use crate::redacted::debug_only;
use crate::telemetry::{PublishEvent, Sinks, Trace};

/// What to do when a live row of the queue already has the timer name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimerConflict {
    /// Write nothing. The result is `Duplicate`.
    #[default]
    Ignore,
    /// Move the row to the new time, if no claim holds the row and the new time is later.
    /// The same delay given again is later. The row is then a new message: with the new
    /// payload and headers, published now, with no attempt and no delivery spent.
    Extend,
}

/// A message with its options. [`Publisher::message`] or a constructor here makes it.
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
    /// The content type that the payload was written as, unless it came as bytes.
    pub(super) written: Option<&'static str>,
    /// The caller or a codec has named it, so a header must agree.
    pub(super) content_type: Option<Cow<'static, str>>,
    pub(super) correlation_id: Option<String>,
    pub(super) headers: Headers,
    /// The correlation id among the headers came with those of another message.
    pub(super) has_copied_id: bool,
    /// So did the content type.
    pub(super) has_copied_type: bool,
    pub(super) delay: Option<Duration>,
    pub(super) at: Option<SystemTime>,
    pub(super) expires_in: Option<Duration>,
    pub(super) timer_id: Option<String>,
    pub(super) conflict: Option<TimerConflict>,
    pub(super) publisher: Option<Publisher>,
    /// The trace of the span that it is published in: a collected message is written later.
    pub(super) trace: Option<Trace>,
    /// The limit of the publisher that collected it: another one writes it.
    pub(super) max_payload: Option<usize>,
}

debug_only!(message: Outgoing =>
    queue, payload_bytes = message.payload.as_ref().ok().map(Bytes::len), headers, timer_id);

impl Outgoing {
    /// Makes a message of a value, as JSON. A value that does not serialise fails when it is
    /// published.
    ///
    /// JSON has no infinity and no NaN: they arrive as `null`. A value that is nested more
    /// than 127 deep is published, but no handler can read it. Bytes become a list of
    /// numbers: use [`raw`](Self::raw) for them.
    #[allow(clippy::needless_pass_by_value, reason = "a queue is named by a string of any kind")]
    pub fn new<B: Serialize + ?Sized>(queue: impl QueueFor<B>, body: &B) -> Self {
        let payload = codec::encode(body).map(Bytes::from).map_err(Into::into);
        Self::with(queue.name().to_owned(), payload, Some(codec::JSON))
    }

    /// Makes a message of a value in another encoding, with the content type of that
    /// encoding. For a typed queue use [`Queue::encoded`](crate::Queue::encoded).
    ///
    /// A header with another content type is refused, such as one copied from the message
    /// that is answered.
    pub fn encoded<C: Codec>(queue: impl Into<String>, body: &(impl Serialize + ?Sized)) -> Self {
        let payload = C::encode(body).map(Bytes::from);
        Self::with(queue.into(), payload, Some(C::CONTENT_TYPE)).content_type(C::CONTENT_TYPE)
    }

    /// Makes a message of bytes as they are, without a content type unless you name one. A
    /// handler takes them as `&[u8]` or [`Bytes`].
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
            has_copied_id: false,
            has_copied_type: false,
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

    /// Sets one header. The last value of a name counts.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        let name = name.into();
        self.has_copied_id &= name != CORRELATION_ID;
        self.has_copied_type &= name != CONTENT_TYPE;
        self.headers.insert(name, value);
        self
    }

    /// Sets several headers, such as those of the message that is answered. These are left
    /// out:
    /// - what tells of that message's replays: this one had none;
    /// - its chain of [tracking](crate::tracking()) ids: this one has an id of its own. In a handler it
    ///   continues the chain of the message that is being handled;
    /// - the [time](Self::expires_in) in which that message had to start;
    /// - the content type, if this payload is a value of [`new`](Self::new), or bytes whose own type is
    ///   [named](Self::content_type);
    /// - a content type or correlation id that is no text;
    /// - its correlation id, if this one is [given](Self::correlation_id) another.
    pub fn headers(mut self, headers: &Headers) -> Self {
        // Whether or not a type is named, before or after this. A value that a codec wrote
        // refuses another type.
        let has_type = self.written == Some(codec::JSON);
        let leaves = |name| {
            let of_that_one =
                OF_REPLAYS.contains(&name) || [EXPIRES_IN, TRACKING_IDS].contains(&name);
            of_that_one || has_type && name == CONTENT_TYPE
        };
        for (name, value) in headers.iter().filter(|(name, _)| !leaves(name)) {
            if value.is_string() || !TEXTS.contains(&name) {
                self.has_copied_id |= name == CORRELATION_ID;
                self.has_copied_type |= name == CONTENT_TYPE;
                self.headers.insert(name, value.clone());
            }
        }
        self
    }

    /// Sets the id that ties the messages of one piece of work together. If absent, it is
    /// the tracking id of the message with which the work begins.
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }

    /// With the span that it is published in.
    pub(super) fn traced(self, trace: Option<Trace>) -> Self {
        Self { trace, ..self }
    }

    /// If its payload is larger, it is refused when it is prepared.
    pub(super) fn limited(self, max_payload: usize) -> Self {
        Self { max_payload: Some(max_payload), ..self }
    }

    /// Bytes of the payload; none when it does not serialise.
    pub(super) fn size(&self) -> usize {
        self.payload.as_ref().map_or(0, Bytes::len)
    }

    /// Says how the payload is encoded. `text/…` is read as text, MessagePack and CBOR with
    /// their features, and everything else as JSON. Python services know only `text/plain`
    /// and types that begin with `application/json`.
    ///
    /// A value of [`new`](Self::new) or [`encoded`](Self::encoded) is encoded already. A type
    /// that is read in another way than the value was written is refused.
    pub fn content_type(mut self, content_type: impl Into<Cow<'static, str>>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// Makes the message due this long after the call, by the database's clock: at most ten
    /// years. The delay of a [collected](Publisher::collect) or returned message counts from
    /// the ack.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Makes the message due at this time, or at once if the time is over.
    ///
    /// With [`expires_in`](Self::expires_in), which counts from the call and not from this time, the
    /// message expires without a run if it is due later than that. Nothing refuses it: the database's
    /// clock decides.
    pub fn at(mut self, time: SystemTime) -> Self {
        self.at = Some(time);
        self
    }

    /// Ends the message as `expired` if it is not started within this time. It becomes a
    /// dead letter, or is deleted where there is no dead-letter table. The time holds for
    /// retries too, and must be longer than a [`delay`](Self::delay).
    ///
    /// It counts in milliseconds, by the database's clock: from the call, or from the ack for
    /// a collected or returned message. It does not count from the time of [`at`](Self::at).
    pub fn expires_in(mut self, limit: Duration) -> Self {
        self.expires_in = Some(limit);
        self
    }

    /// Gives the message a timer name. At most one live row of the queue has this name.
    /// The name is free again when the row was handled, so it is no idempotency key for ever.
    ///
    /// A handler that sets its own timer again [collects](Publisher::collect) or returns
    /// the message. Until the ack its own row has the name, so a publish in a transaction
    /// writes nothing: it returns [`Published::Duplicate`], or in a [`Tx`](crate::Tx), but
    /// not in a savepoint of it, [`PublishError::OwnTimer`].
    ///
    /// Under REPEATABLE READ or SERIALIZABLE (PostgreSQL) a publish fails if somebody has written to
    /// the row of the name since the transaction's snapshot, such as a claim, and the transaction
    /// has to begin anew.
    pub fn timer_id(mut self, name: impl Into<String>) -> Self {
        self.timer_id = Some(name.into());
        self
    }

    /// Says what to do when the timer name is taken.
    pub fn on_conflict(mut self, conflict: TimerConflict) -> Self {
        self.conflict = Some(conflict);
        self
    }

    /// Publishes the message in the caller's transaction: through the publisher that
    /// made it, or else through [`Publisher::from_env`].
    ///
    /// # Errors
    /// As [`publish`](crate::publish()).
    ///
    /// # Cancel safety
    /// As [`publish`](crate::publish()).
    pub async fn publish<T: Transaction + ?Sized>(
        mut self,
        tx: &mut T,
    ) -> Result<Published, PublishError> {
        match self.publisher.take() {
            Some(publisher) => publisher.send(tx, self).await,
            None => match Publisher::of_process() {
                Ok(publisher) => publisher.send(tx, self).await,
                Err(error) => {
                    let event = PublishEvent::start(&self.queue, self.size());
                    event.end(Err(&error), &Sinks::of_process());
                    Err(error)
                }
            },
        }
    }
}
