//! A handle that knows the table and the limits.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use uuid::Uuid;

use super::collected::Collected;
use super::prepare::ids;
use super::tally::Tally;
use super::{
    Connection, Outgoing, Prepared, PublishError, Published, QueueFor, QueueName, Transaction,
    check_name, sealed,
};
use crate::extract::Context;
use crate::message::Row;
use crate::redacted::debug_only;
use crate::store::names::{NameError, TableNames};
use crate::telemetry::{self, PublishSpan, Sinks};
use crate::tracking::Trail;

/// Default of [`Publisher::max_payload`]: 16 MiB.
pub(crate) const MAX_PAYLOAD: usize = 16 * 1024 * 1024;

/// PostgreSQL drops a connection that sends a statement of 1 GiB, and SQLite takes no value of 1 GB.
const MAX_BATCH: usize = 900_000_000;

/// Publishes to one outbox table. Cheap to clone, holds no connection.
///
/// # Examples
/// ```no_run
/// # async fn place(tx: &mut sqlx::PgTransaction<'_>) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use outbox::{Publisher, TableNames};
///
/// let publisher = Publisher::new(TableNames::new("outbox")?.in_schema("shop")?);
/// publisher.message("orders", &7).delay(Duration::from_secs(5)).publish(tx).await?;
/// # Ok(()) }
/// ```
///
/// As a parameter of a handler it can also [`collect`](Self::collect) messages,
/// which are published with the ack of the delivery. A batch has no such publisher as
/// a whole: each item has its own, `item.context.publisher()`, for its own ack.
///
/// # Cancel safety
/// Of all its methods, [`pending`](Self::pending) only reads. A dropped call of another one may
/// have written rows, perhaps not all rows of a batch: roll the transaction back.
#[derive(Clone)]
pub struct Publisher {
    table: Arc<Table>,
    /// For the delivery whose handler asked for this publisher.
    collected: Option<Collected>,
    /// That delivery. A message that is published where no delivery is handled, or several
    /// are, comes from it.
    delivery: Option<Context>,
    /// Who is told what it publishes. `None`: the recorders of the app that was started last.
    sinks: Option<Sinks>,
}

struct Table {
    names: TableNames,
    max_payload: usize,
    statements: sealed::Statements,
}

impl Publisher {
    /// A publisher to these tables.
    #[must_use]
    pub fn new(names: TableNames) -> Self {
        Self::with(names, MAX_PAYLOAD)
    }

    fn with(names: TableNames, max_payload: usize) -> Self {
        let max_payload = max_payload.min(MAX_BATCH);
        let statements = sealed::Statements {
            #[cfg(feature = "postgres")]
            postgres: crate::store::postgres::publish::PublishSql::new(&names),
            #[cfg(feature = "sqlite")]
            sqlite: crate::store::sqlite::publish::PublishSql::new(&names),
        };
        Self {
            table: Arc::new(Table { names, max_payload, statements }),
            collected: None,
            delivery: None,
            sinks: None,
        }
    }

    /// The same publisher for one delivery, and perhaps for messages to go with its ack.
    pub(crate) fn of(&self, delivery: &Context, collected: Option<Collected>) -> Self {
        Self { collected, delivery: Some(delivery.clone()), ..self.clone() }
    }

    /// What a message that is published now inherits.
    fn trail(&self) -> Trail {
        let current = Trail::current();
        match &self.delivery {
            Some(delivery) if !current.is_of_message() => current.after(delivery.trail()),
            _ => current,
        }
    }

    /// In a handler: publishes the message with the ack of its delivery, in the same
    /// statement (on SQLite, or with a [`Tx`](crate::Tx), in the same transaction).
    ///
    /// - If the delivery ends in any other way, nothing is published.
    /// - If the message cannot be published, the delivery fails as by an error of kind
    ///   `publish`, or with a `Tx` of kind `transaction` where the database refuses it.
    /// - A timer that would be a [`Duplicate`](Published::Duplicate) is left out, and the ack
    ///   stands. But two collected messages with one timer name cannot be published.
    /// - A delay counts from the ack.
    /// - A correlation id that the message does not set is the delivery's.
    /// - The message goes to the table of the delivery, even if another publisher made it.
    /// - A layer may collect too. If a layer acks what the handler has not acked, what the
    ///   handler collected is not published.
    ///
    /// # Errors
    /// When this publisher is not a handler's parameter, when the row was acked before the
    /// handler ran (`AckFirst`), or when the handler has ended. A task that the handler
    /// started and did not wait for is too late.
    pub fn collect(&self, message: Outgoing) -> Result<(), PublishError> {
        let collected = self.collected.as_ref().ok_or(PublishError::NoDelivery)?;
        let inbound = || self.trail().inbound();
        let trace = PublishSpan::created(&message.queue, message.size(), inbound);
        let message = message.traced(trace).limited(self.table.max_payload);
        collected.push(message, self.delivery.as_ref().is_some_and(Context::is_within))
    }

    /// What the store publishes with an ack.
    pub(crate) fn prepare(
        &self,
        messages: Vec<Outgoing>,
        trail: &Trail,
    ) -> Result<Vec<Prepared>, PublishError> {
        let mut timers = HashSet::new();
        let count = messages.len();
        let mut prepared: Vec<Prepared> = Vec::with_capacity(count);
        let mut bytes = 0;
        for (message, id) in messages.into_iter().zip(ids()) {
            let max_payload = message.max_payload.unwrap_or(self.table.max_payload);
            let number = prepared.len() + 1;
            let message = message
                .prepare(max_payload, trail, id)
                .map_err(|refused| refused.of_many(number, count))?;
            if let Some(timer_id) = &message.timer_id
                && !timers.insert((message.queue.clone(), timer_id.clone()))
            {
                let (queue, timer_id) = (message.queue, timer_id.clone());
                return Err(PublishError::TimerTwice { queue, timer_id });
            }
            bytes += message.sent_bytes();
            prepared.push(message);
        }
        // A single message has only `max_payload` as its limit.
        if bytes > MAX_BATCH && prepared.len() > 1 {
            return Err(PublishError::BatchTooLarge { bytes, max: MAX_BATCH });
        }
        Ok(prepared)
    }

    /// A publisher to the table that `OUTBOX_TABLE` and `OUTBOX_SCHEMA` name,
    /// the same that [`App::from_env`](crate::App::from_env) reads.
    ///
    /// # Errors
    /// When a variable that [`TableNames::from_env`] reads cannot be used.
    pub fn from_env() -> Result<Self, NameError> {
        TableNames::from_env().map(Self::new)
    }

    /// The environment's publisher, made once in a process.
    pub(super) fn of_process() -> Result<&'static Self, PublishError> {
        static PUBLISHER: OnceLock<Result<Publisher, NameError>> = OnceLock::new();
        PUBLISHER.get_or_init(Self::from_env).as_ref().map_err(|error| error.clone().into())
    }

    /// Refuses payloads above this many bytes; 16 MiB by default, and 900 MB at most.
    #[must_use]
    pub fn max_payload(self, bytes: usize) -> Self {
        let table = Self::with(self.table.names.clone(), bytes).table;
        Self { table, ..self }
    }

    /// The tables it writes to.
    #[must_use]
    pub fn names(&self) -> &TableNames {
        &self.table.names
    }

    /// A message to this publisher's table, for options.
    pub fn message<B: Serialize + ?Sized>(&self, queue: impl QueueFor<B>, body: &B) -> Outgoing {
        let mut outgoing = Outgoing::new(queue, body);
        outgoing.publisher = Some(self.clone());
        outgoing
    }

    /// Publishes a value as JSON in the caller's transaction.
    ///
    /// # Errors
    /// As [`publish`](crate::publish()).
    pub async fn publish<T: Transaction + ?Sized, B: Serialize + ?Sized>(
        &self,
        tx: &mut T,
        queue: impl QueueFor<B>,
        body: &B,
    ) -> Result<Published, PublishError> {
        self.send(tx, Outgoing::new(queue, body)).await
    }

    /// Publishes a message with options in the caller's transaction, to this publisher's table.
    ///
    /// # Errors
    /// As [`publish`](crate::publish()).
    pub async fn send<T: Transaction + ?Sized>(
        &self,
        tx: &mut T,
        message: Outgoing,
    ) -> Result<Published, PublishError> {
        let event = telemetry::PublishEvent::start(&message.queue, message.size());
        let (trail, id) = (self.trail(), Uuid::now_v7());
        let span = PublishSpan::of_one(&message.queue, message.size(), || trail.inbound());
        let message = message.traced(span.trace());
        let prepared = message.prepare(self.table.max_payload, &trail, id);
        let result = match prepared.and_then(|one| self.not_own(tx, [&one]).map(|()| one)) {
            Ok(message) => {
                tx.keep(std::slice::from_ref(&message));
                let insert = span.around(tx.on().insert(&self.table.statements, &message));
                insert.await.map_err(Into::into)
            }
            Err(refused) => Err(refused),
        };
        let told = result.as_ref().map(|published| published.rows());
        span.end(result.as_ref().map(|published| published.id()));
        event.end(told, &self.sinks());
        result
    }

    /// Publishes many messages with one statement, each with its own queue and options.
    /// Returns what became of each, in the order given.
    ///
    /// On SQLite, timers that [`Extend`](crate::TimerConflict::Extend) moves take further
    /// statements. In a batch above 32 MiB each message there has a statement of its own.
    ///
    /// On PostgreSQL, timers are locked and written in the order of their queues and names, byte
    /// by byte, so that two batches do not wait for each other. Timers that are due at once are
    /// also handled in that order. A transaction that sets timers one by one should do so in that
    /// order.
    ///
    /// # Errors
    /// As [`publish`](crate::publish()). One refused message refuses the batch before the
    /// statement, and the error says [which](PublishError::OneOfMany). A batch may name a timer of a
    /// queue only once.
    pub async fn publish_batch<T: Transaction + ?Sized>(
        &self,
        tx: &mut T,
        messages: impl IntoIterator<Item = Outgoing>,
    ) -> Result<Vec<Published>, PublishError> {
        let messages: Vec<_> = messages.into_iter().collect();
        let Some(first) = messages.first() else { return Ok(Vec::new()) };
        let bytes = messages.iter().map(Outgoing::size).sum();
        let event = telemetry::PublishEvent::start(&first.queue, bytes);
        // Most batches are for one queue, and there is nothing to tell apart.
        let mut each = Vec::new();
        if messages.iter().any(|one| one.queue != first.queue) {
            each.extend(messages.iter().map(|one| (one.queue.clone(), one.size())));
        }
        let (trail, queues) = (self.trail(), messages.iter().map(|one| &*one.queue));
        let span = PublishSpan::of_batch(queues, || trail.inbound());
        let trace = span.trace();
        let messages = messages.into_iter().map(|one| one.traced(trace.clone())).collect();
        let prepared = self.prepare(messages, &trail);
        let result = match prepared.and_then(|all| self.not_own(tx, &all).map(|()| all)) {
            Ok(all) => {
                tx.keep(&all);
                let all: Vec<_> = all.iter().collect();
                let insert = span.around(tx.on().insert_batch(&self.table.statements, &all));
                insert.await.map_err(Into::into)
            }
            Err(refused) => Err(refused),
        };
        span.end(result.as_ref().map(|_| None));
        match &result {
            Ok(all) if !each.is_empty() => {
                let mut tally = Tally::of(event);
                for ((queue, bytes), published) in each.iter().zip(all) {
                    tally.rows(queue, published.rows(), *bytes);
                }
                self.told(tally);
            }
            _ => {
                let written = |all: &Vec<Published>| all.iter().map(|one| one.rows()).sum();
                event.end(result.as_ref().map(written), &self.sinks());
            }
        }
        result
    }

    /// Refuses the timer that the transaction settles: it would be a duplicate of a row that the
    /// end of the transaction deletes.
    fn not_own<'a, T: Transaction + ?Sized>(
        &self,
        tx: &T,
        messages: impl IntoIterator<Item = &'a Prepared>,
    ) -> Result<(), PublishError> {
        let here = |names: &TableNames| names.qualified(names.table());
        for Prepared { queue, timer_id, .. } in messages {
            let Some(timer_id) = timer_id else { continue };
            if tx.settles(queue, timer_id).is_some_and(|names| here(names) == here(self.names())) {
                let (queue, timer_id) = (queue.clone(), timer_id.clone());
                return Err(PublishError::OwnTimer { queue, timer_id });
            }
        }
        Ok(())
    }

    /// Tells these recorders what it publishes.
    pub(crate) fn telling(self, sinks: Sinks) -> Self {
        Self { sinks: Some(sinks), ..self }
    }

    fn sinks(&self) -> Sinks {
        self.sinks.clone().unwrap_or_else(Sinks::of_process)
    }

    pub(crate) fn statements(&self) -> &sealed::Statements {
        &self.table.statements
    }

    /// Tells of messages, queue by queue.
    pub(crate) fn told(&self, tally: Tally) {
        tally.tell(&self.sinks());
    }

    /// Deletes the row of a timer, unless a claim holds the row. Returns true when it did. Like
    /// everything here it counts once the transaction commits.
    ///
    /// A claim holds a row on which a handler works, a row that waits in a process for a handler,
    /// and a row whose process died and that no claim has taken since.
    ///
    /// # Errors
    /// As [`publish`](crate::publish()). Under REPEATABLE READ or SERIALIZABLE (PostgreSQL) also if
    /// somebody has written to the row since the transaction's snapshot.
    pub async fn cancel_timer<T: Transaction + ?Sized>(
        &self,
        tx: &mut T,
        queue: impl QueueName,
        timer_id: &str,
    ) -> Result<bool, PublishError> {
        let queue = queue.name();
        check_name("queue", queue)?;
        check_name("timer", timer_id)?;
        let here = tx.on().cancel_timer(&self.table.statements, queue, timer_id).await?;
        Ok(tx.cancel_elsewhere(queue, timer_id) || here)
    }

    /// Reads up to `limit` rows of a queue in order of due time, without leasing them.
    /// [`Operator::queues`](crate::ops::Operator::queues) tells which queues there are.
    ///
    /// # Errors
    /// When no queue can have this name, or the statement fails.
    pub async fn pending<C: Connection + ?Sized>(
        &self,
        connection: &mut C,
        queue: impl QueueName,
        limit: u32,
    ) -> Result<Vec<Row>, PublishError> {
        let queue = queue.name();
        check_name("queue", queue)?;
        Ok(connection.pending(&self.table.statements, queue, i64::from(limit)).await?)
    }
}

impl Default for Publisher {
    /// To the table `outbox`.
    fn default() -> Self {
        Self::new(TableNames::default())
    }
}

debug_only!(publisher: Publisher => names = publisher.table.names);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_statement_could_carry_is_refused_before_it_is_sent() {
        let publisher = Publisher::default().max_payload(2 * MAX_BATCH);
        let prepared = |count: usize, bytes: usize| {
            let payload = bytes::Bytes::from(vec![0; bytes]);
            let messages = (0..count).map(|_| Outgoing::raw("q", payload.clone())).collect();
            publisher.prepare(messages, &Trail::current()).map(|all| all.len())
        };
        assert_eq!(prepared(53, MAX_PAYLOAD).unwrap(), 53);
        assert!(matches!(prepared(54, MAX_PAYLOAD), Err(PublishError::BatchTooLarge { .. })));
        assert_eq!(prepared(1, MAX_BATCH).unwrap(), 1);
        let refused = prepared(1, MAX_BATCH + 1);
        assert!(matches!(refused, Err(PublishError::PayloadTooLarge { .. })));
    }
}
