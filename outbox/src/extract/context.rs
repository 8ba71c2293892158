//! What a handler can read of its delivery, and say about it.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::Deserialize;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::delivery::{Common, Delivery, Word};
use super::work::{Stage, Work};
use crate::message::{DecodeError, Headers, Row, Stored, codec, to_micros};
use crate::publish::{Collected, Prepared, PublishError, Publisher};
use crate::redacted::debug_only;
use crate::subscriber::{AckPolicy, Outcome};
use crate::telemetry::{TARGET, warn};
use crate::tracking::Trail;

/// The delivery that a handler runs on. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    delivery: Arc<Delivery>,
    /// True for the handler, false for the layers around it.
    within: bool,
}

impl Context {
    pub(crate) fn new(delivery: Delivery) -> Self {
        Self { delivery: Arc::new(delivery), within: false }
    }

    /// The same delivery, for a handler with layers around it.
    pub(crate) fn within(self) -> Self {
        Self { within: true, ..self }
    }

    /// Whether the handler collects here, and not a layer.
    pub(crate) const fn is_within(&self) -> bool {
        self.within
    }

    /// The id of the row.
    #[must_use]
    pub fn id(&self) -> i64 {
        self.delivery.row.id
    }

    /// The queue the message was published to.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.delivery.row.queue
    }

    /// The name of the subscriber whose handler runs.
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

    /// Decodes the payload as `T`, which may borrow from it.
    ///
    /// # Errors
    /// Fails if the bytes are not what `T` expects. Use `?` in the handler: then the delivery fails
    /// with kind `decode`, as it does for a parameter. The exception is a handler whose error type
    /// wraps this error in its own, as `anyhow`'s does.
    pub fn decode<'a, T: Deserialize<'a>>(&'a self) -> Result<T, DecodeError> {
        codec::decode(self.payload(), self.content_type()?.as_deref())
    }

    /// The content type in the headers. They are not parsed as a whole for it.
    pub(crate) fn content_type(&self) -> Result<Option<Cow<'_, str>>, DecodeError> {
        if let Some(headers) = self.delivery.headers.get() {
            return Ok(headers.content_type().map(Cow::Borrowed));
        }
        let headers = self.delivery.row.headers.as_ref();
        Ok(headers.map(Stored::content_type).transpose()?.flatten())
    }

    /// The headers. They are empty if those of the row are not a JSON object. Then a payload does not
    /// decode whose encoding they would tell, and the parameter [`Headers`] is refused.
    #[must_use]
    pub fn headers(&self) -> &Headers {
        static NONE: OnceLock<Headers> = OnceLock::new();
        self.parsed_headers().unwrap_or_else(|_| NONE.get_or_init(Headers::new))
    }

    pub(super) fn parsed_headers(&self) -> Result<&Headers, DecodeError> {
        if self.delivery.headers.get().is_none() {
            let parsed = self.delivery.row.headers()?;
            return Ok(self.delivery.headers.get_or_init(|| parsed));
        }
        Ok(self.delivery.headers.get_or_init(Headers::new))
    }

    /// The id that ties the messages of one piece of work together. It is the id of the row if
    /// the publisher gave none.
    #[must_use]
    pub fn correlation_id(&self) -> String {
        self.headers().correlation_id().map_or_else(|| self.id().to_string(), str::to_owned)
    }

    /// How often the row has been claimed so far, this claim included. A claim does not count if
    /// the row was then given back unstarted, snoozed, or put off: because of the database, or
    /// because a dead letter could not be written.
    #[must_use]
    pub fn deliveries(&self) -> u64 {
        self.delivery.row.deliveries_count
    }

    /// How many runs have failed so far: 0 in the first run.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.delivery.row.attempts_count
    }

    /// A number that grows with every claim of the row under which a handler starts. A later owner
    /// of the row has a higher number, so another system can refuse what an earlier owner still
    /// writes. Do not compare the numbers of different rows.
    ///
    /// The number is the count of [`deliveries`](Self::deliveries). If several claims have one
    /// count, because some of them do not count, the time of the claim by the database's clock
    /// comes second. A clock that is set back does not make the number smaller. Three things do:
    /// - Lowering `deliveries_count` by hand.
    /// - A pardon by the engine. If a row has outlived `max_deliveries` processes and then has a
    ///   claim that does not count, its deliveries count from `max_deliveries` again.
    /// - [`TimerConflict::Extend`](crate::TimerConflict::Extend), which makes a row another
    ///   message: the number begins anew. If timers are moved after they were delivered, compare
    ///   only fences of the same [`id`](Self::id) and [`created_at`](Self::created_at).
    #[must_use]
    pub fn fence(&self) -> i64 {
        // 21 bits for the count over 42 bits for the milliseconds, which last until 2109.
        let millis = self.delivery.row.acquired_at.map_or(0, to_micros) / 1000;
        let deliveries = i64::try_from(self.deliveries()).unwrap_or(i64::MAX).min((1 << 21) - 1);
        deliveries << 42 | millis.clamp(0, (1 << 42) - 1)
    }

    /// When the message was published, or its timer was last moved, by the database's clock. A
    /// Python service that moves a timer leaves this time as it is.
    #[must_use]
    pub fn created_at(&self) -> SystemTime {
        self.delivery.row.created_at
    }

    /// The timer name of the message, if it has one.
    #[must_use]
    pub fn timer_id(&self) -> Option<&str> {
        self.delivery.row.timer_id.as_deref()
    }

    /// When the lease runs out unless it is extended before. The engine extends it while the
    /// handler lives.
    #[must_use]
    pub fn lease_deadline(&self) -> Instant {
        self.delivery.watch.deadline()
    }

    /// A token that is cancelled when the run is over before its end:
    /// - The lease is lost.
    /// - The drain's time is over.
    /// - The run has panicked, or has taken longer than its `timeout`.
    /// - A layer no longer waits for the handler.
    ///
    /// The handler's future is dropped then. A handler of batches goes on as long as others of its
    /// messages need it. A task that the handler has spawned should watch this token, and so should
    /// a plain fn.
    #[must_use]
    pub fn cancelled(&self) -> &CancellationToken {
        self.delivery.watch.cancelled()
    }

    /// The state of type `T`, if the app has one.
    #[must_use]
    pub fn state<T: 'static>(&self) -> Option<&T> {
        self.delivery.common.states.get()
    }

    /// A publisher for the table that holds the message. It can also collect messages for the
    /// statement that acks.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        let new = || Some(Collected::new());
        let collects = self.delivery.common.collects();
        let collected = collects.then(|| self.delivery.collected.get_or_init(new).clone());
        self.delivery.common.publisher.of(self, collected.flatten())
    }

    /// The collected messages that go with the ack, ready for the store.
    pub(crate) fn prepared(&self) -> Result<Vec<Prepared>, PublishError> {
        let collected = self.delivery.end_collection();
        if collected.is_empty() {
            return Ok(Vec::new());
        }
        let all = self.delivery.is_acked_by_handler();
        let collected = collected.into_iter().filter(|one| all || !one.within);
        let collected = collected.map(|one| one.message).collect();
        self.delivery.common.publisher.prepare(collected, self.trail())
    }

    /// What the messages inherit that the handler publishes.
    pub(crate) fn trail(&self) -> &Trail {
        self.delivery.trail.get_or_init(|| Trail::of(self.headers(), self.correlation_id()))
    }

    /// The tracking ids of the message: one for each publish that led to it, from the first to its
    /// own. A chain of more than 32 ids keeps the first one and the last 31.
    #[must_use]
    pub fn tracking_ids(&self) -> Vec<Uuid> {
        crate::tracking::ids(self.headers())
    }

    /// Says under [`AckPolicy::Manual`](crate::AckPolicy) that the message is done.
    ///
    /// `ack`, `nack`, `reject` and `snooze` only leave a word. It is written after the handler has
    /// returned. What counts depends on the policy:
    /// - Under `Manual` the first word counts, even over a later error. The exception is an ack of
    ///   a handler that takes a [`Tx`](crate::Tx): the error rolls it back.
    /// - Under `NackOnError` and `RejectOnError` an error counts over every word. If the handler
    ///   returns no error, the first `nack`, `reject` or `snooze` counts over what it returns. An
    ///   ack is no word there: `Ok` says it already.
    /// - Under `AckFirst` no word counts.
    ///
    /// Returns false if the word does not count: its policy rules it out, or a word was given
    /// before. The log tells of words that the policy rules out.
    pub fn ack(&self) -> bool {
        self.say(Outcome::Ack)
    }

    /// Says that the run has failed: the retry strategy decides. See [`ack`](Self::ack).
    pub fn nack(&self) -> bool {
        self.say(Outcome::Nack)
    }

    /// Says that the message has failed for good. See [`ack`](Self::ack).
    pub fn reject(&self, reason: impl Into<std::borrow::Cow<'static, str>>) -> bool {
        self.say(Outcome::reject(reason))
    }

    /// Makes the message due again after `delay`. No attempt is spent. See [`ack`](Self::ack).
    pub fn snooze(&self, delay: Duration) -> bool {
        self.say(Outcome::Snooze(delay))
    }

    fn say(&self, outcome: Outcome) -> bool {
        let Common { ack, subscriber, .. } = *self.delivery.common;
        let deaf = match ack {
            AckPolicy::AckFirst => Some("under `AckFirst` the message is settled before it runs"),
            AckPolicy::Manual => None,
            // What the handler does after it may fail.
            _ if outcome == Outcome::Ack => Some("an ack counts only under `ack = Manual`"),
            _ => None,
        };
        if let Some(why) = deaf {
            warn!(
                target: TARGET, subscriber, row_id = self.id(),
                "what a handler says about its delivery does not count: {why}"
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

    /// Its layer does not wait for the handler, or has answered otherwise than the handler.
    pub(crate) fn overrule(&self) {
        self.delivery.work.enter(Stage::Overruled);
        self.cancelled().cancel();
    }
}

impl Context {
    /// The context of a row that nobody has claimed, to see whether it decodes.
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

    /// The context of a row that is in no table.
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
