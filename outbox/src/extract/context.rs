//! What a handler may know about its delivery, and say about it.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::Deserialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use uuid::Uuid;

use super::delivery::{Common, Delivery, Word};
use super::work::{Stage, Work};
use crate::message::{DecodeError, Headers, Row, Stored, codec, to_micros};
use crate::publish::{Collected, Prepared, PublishError, Publisher};
use crate::redacted::debug_only;
use crate::subscriber::{AckPolicy, Outcome};
use crate::telemetry::TARGET;
use crate::tracking::Trail;

/// The delivery that a handler runs on. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    delivery: Arc<Delivery>,
    /// It is the handler's, and not one of the layers around it.
    within: bool,
}

impl Context {
    pub(crate) fn new(delivery: Delivery) -> Self {
        Self { delivery: Arc::new(delivery), within: false }
    }

    /// The same for the handler, which layers are around.
    pub(crate) fn within(self) -> Self {
        Self { within: true, ..self }
    }

    /// Whose word it is that collects here.
    pub(crate) const fn is_within(&self) -> bool {
        self.within
    }

    /// Identity of the row.
    #[must_use]
    pub fn id(&self) -> i64 {
        self.delivery.row.id
    }

    /// The queue the message was published to.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.delivery.row.queue
    }

    /// The name of the subscriber that runs.
    #[must_use]
    pub fn subscriber(&self) -> &'static str {
        self.delivery.common.subscriber
    }

    /// The bytes as published.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.delivery.row.payload
    }

    /// The bytes as published, shared instead of copied.
    #[must_use]
    pub fn payload_bytes(&self) -> Bytes {
        self.delivery.row.payload.clone()
    }

    /// Reads the payload as `T`, which may borrow from it.
    ///
    /// # Errors
    /// When the bytes are not what `T` expects. Use `?` in the handler: the delivery then
    /// fails with kind `decode`, as it does for a parameter, unless the handler's error is
    /// one of another type that it is put into, such as `anyhow`'s.
    pub fn decode<'a, T: Deserialize<'a>>(&'a self) -> Result<T, DecodeError> {
        codec::decode(self.payload(), self.content_type()?.as_deref())
    }

    /// As the headers have it, which are not read as a whole for it.
    pub(crate) fn content_type(&self) -> Result<Option<Cow<'_, str>>, DecodeError> {
        if let Some(headers) = self.delivery.headers.get() {
            return Ok(headers.content_type().map(Cow::Borrowed));
        }
        let headers = self.delivery.row.headers.as_ref();
        Ok(headers.map(Stored::content_type).transpose()?.flatten())
    }

    /// The headers; empty when the row's are not a JSON object, in which case
    /// the payload does not decode either.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        static NONE: OnceLock<Headers> = OnceLock::new();
        self.parsed_headers().unwrap_or_else(|_| NONE.get_or_init(Headers::new))
    }

    fn parsed_headers(&self) -> Result<&Headers, DecodeError> {
        if self.delivery.headers.get().is_none() {
            let parsed = self.delivery.row.headers()?;
            return Ok(self.delivery.headers.get_or_init(|| parsed));
        }
        Ok(self.delivery.headers.get_or_init(Headers::new))
    }

    /// What ties the messages of one piece of work together; the row's id when
    /// the publisher gave none.
    #[must_use]
    pub fn correlation_id(&self) -> String {
        self.headers().correlation_id().map_or_else(|| self.id().to_string(), str::to_owned)
    }

    /// Claims of the row so far, this one included, without those given back unstarted,
    /// snoozed or put off: by the database, or because a dead letter could not be written.
    #[must_use]
    pub fn deliveries(&self) -> u64 {
        self.delivery.row.deliveries_count
    }

    /// Failed runs so far: 0 in the first run.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.delivery.row.attempts_count
    }

    /// A number that grows with every claim of the row under which a handler
    /// starts: a later owner of the row has a higher one, so that another system can
    /// refuse what an earlier one still writes. Of another row it says nothing.
    ///
    /// It is the count of [`deliveries`](Self::deliveries), and among claims of one count,
    /// which those make that do not count, their time by the database's clock. No clock
    /// that is set back makes it smaller; lowering `deliveries_count` by hand would, and one
    /// thing that the engine does: a row that outlived `max_deliveries` processes and then
    /// ends in one of these is pardoned, and counts from there again. It begins anew in a row
    /// that [`TimerConflict::Extend`](crate::TimerConflict::Extend) has made another message:
    /// where timers are moved after they were delivered, compare fences of the same
    /// [`id`](Self::id) and [`created_at`](Self::created_at) only.
    #[must_use]
    pub fn fence(&self) -> i64 {
        // 21 bits over 42, which last until 2109.
        let millis = self.delivery.row.acquired_at.map_or(0, to_micros) / 1000;
        let deliveries = i64::try_from(self.deliveries()).unwrap_or(i64::MAX).min((1 << 21) - 1);
        deliveries << 42 | millis.clamp(0, (1 << 42) - 1)
    }

    /// When the message was published, or its timer last moved (but by a Python service, which
    /// leaves it), by the database's clock.
    #[must_use]
    pub fn created_at(&self) -> SystemTime {
        self.delivery.row.created_at
    }

    /// The timer name of the message.
    #[must_use]
    pub fn timer_id(&self) -> Option<&str> {
        self.delivery.row.timer_id.as_deref()
    }

    /// When the lease runs out unless it is extended before, which happens
    /// while the handler lives.
    #[must_use]
    pub fn lease_deadline(&self) -> Instant {
        self.delivery.watch.deadline()
    }

    /// Cancelled when the lease is lost, the drain's time is over, or the run has panicked or
    /// has taken longer than its `timeout`. The handler's future is dropped then; a task it
    /// spawned should watch this, and so should a plain fn. Cancelled also when a layer waits
    /// for the handler no longer; that of a batch goes on for the other messages.
    #[must_use]
    pub fn cancelled(&self) -> &CancellationToken {
        self.delivery.watch.cancelled()
    }

    /// The state of type `T`, if the app has one.
    #[must_use]
    pub fn state<T: 'static>(&self) -> Option<&T> {
        self.delivery.common.states.get()
    }

    /// A publisher to the table that the message lies in, which can collect
    /// messages for the statement that acks.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        let collects = self.delivery.common.collects();
        let collected =
            collects.then(|| self.delivery.collected.get_or_init(Collected::new).clone());
        let publisher = self.delivery.common.publisher.of(self, collected);
        if self.delivery.ended.load(Ordering::SeqCst) {
            self.delivery.collected();
        }
        publisher
    }

    /// What was collected and goes with the ack, ready for the store.
    pub(crate) fn prepared(&self) -> Result<Vec<Prepared>, PublishError> {
        let collected = self.delivery.collected();
        if collected.is_empty() {
            return Ok(Vec::new());
        }
        let all = self.delivery.is_acked_by_handler();
        let collected = collected.into_iter().filter(|one| all || !one.within);
        let collected = collected.map(|one| one.message).collect();
        self.delivery.common.publisher.prepare(collected, self.trail())
    }

    /// What the handler's messages inherit.
    pub(crate) fn trail(&self) -> &Trail {
        self.delivery.trail.get_or_init(|| Trail::of(self.headers(), self.correlation_id()))
    }

    /// The tracking ids of the message: one for each publish that led to it, the
    /// first one first, its own last. Of a chain of more than 32 the first and the last 31.
    #[must_use]
    pub fn tracking_ids(&self) -> Vec<Uuid> {
        crate::tracking::ids(self.headers())
    }

    /// Under [`AckPolicy::Manual`](crate::AckPolicy): done.
    ///
    /// This and the three below only leave word; it is written after the
    /// handler returned. The first word counts, also over a later error, but for an ack
    /// where the handler takes a [`Tx`](crate::Tx): the error rolls that back.
    ///
    /// Under `NackOnError` and `RejectOnError` an error counts, whatever was said before. Where
    /// the handler returns none, the first of the three below counts over what it returns, and
    /// an ack, which is what `Ok` says, is no word.
    ///
    /// They return false where the word does not count: one was already given, it is an ack under
    /// those two policies, or any under `AckFirst`. The last two are told of in the log.
    pub fn ack(&self) -> bool {
        self.say(Outcome::Ack)
    }

    /// Failed, ask the retry strategy; see [`ack`](Self::ack).
    pub fn nack(&self) -> bool {
        self.say(Outcome::Nack)
    }

    /// Failed for good; see [`ack`](Self::ack).
    pub fn reject(&self, reason: impl Into<std::borrow::Cow<'static, str>>) -> bool {
        self.say(Outcome::reject(reason))
    }

    /// Due again after `delay`, no attempt spent; see [`ack`](Self::ack).
    pub fn snooze(&self, delay: Duration) -> bool {
        self.say(Outcome::Snooze(delay))
    }

    fn say(&self, outcome: Outcome) -> bool {
        let Common { ack, subscriber, .. } = *self.delivery.common;
        let deaf = match ack {
            AckPolicy::AckFirst => Some("under `AckFirst` the message is settled before it"),
            AckPolicy::Manual => None,
            // What the handler still does may fail.
            _ if outcome == Outcome::Ack => Some("an ack does under `ack = Manual` only"),
            _ => None,
        };
        if let Some(why) = deaf {
            warn!(
                target: TARGET, subscriber, row_id = self.id(),
                "a handler's word on its delivery does not count: {why}"
            );
            return false;
        }
        self.delivery.said.set(Word { outcome, within: self.within }).is_ok()
    }

    pub(crate) fn delivery(&self) -> &Delivery {
        &self.delivery
    }

    pub(crate) fn work(&self) -> &Work {
        &self.delivery.work
    }

    /// Its layer does not wait for the handler, or has another word on what that did.
    pub(crate) fn overrule(&self) {
        self.delivery.work.enter(Stage::Overruled);
        self.cancelled().cancel();
    }
}

impl Context {
    /// Of a row that nobody has claimed, to see whether it decodes.
    pub(crate) fn unclaimed(
        id: i64,
        queue: String,
        payload: Bytes,
        headers: Option<Stored>,
        common: &Arc<Common>,
    ) -> Self {
        let fresh = Row::fresh(id, queue, payload, SystemTime::UNIX_EPOCH);
        let row = Row { deliveries_count: 1, headers, ..fresh };
        let now = Instant::now();
        Self::new(Delivery::new(Box::new(row), common, now, now))
    }

    /// Of a row that lies nowhere.
    #[cfg(test)]
    pub(crate) fn of_test(headers: &str) -> Self {
        let common = Common {
            subscriber: "it",
            states: crate::extract::States::default(),
            publisher: Publisher::default(),
            ack: AckPolicy::default(),
            threads: Arc::new(tokio::sync::Semaphore::new(1)),
        };
        Self::unclaimed(7, "q".into(), Bytes::new(), Some(headers.into()), &Arc::new(common))
    }
}

debug_only!(context: Context => subscriber = context.delivery.common.subscriber, row = context.delivery.row);
