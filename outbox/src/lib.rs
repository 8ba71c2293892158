//! Transactional messaging over PostgreSQL and SQLite.
//!
//! You write a message in the same SQL transaction as your data and annotate an
//! async fn. outbox runs the fn for the message, retries it when it fails, and
//! dead-letters the message when it fails for good.
//!
//! ```no_run
//! use outbox::{App, State, subscriber};
//! use serde::{Deserialize, Serialize};
//! # #[derive(Clone, Default)] struct Mailer;
//! # impl Mailer { async fn send(&self, _: i64) -> Result<(), std::io::Error> { Ok(()) } }
//!
//! #[derive(Serialize, Deserialize)]
//! struct Order { id: i64 }
//!
//! #[subscriber("orders", retry = Exponential(initial = "1s", max_attempts = 5), max_deliveries = 10)]
//! async fn confirm(order: Order, State(mailer): State<Mailer>) -> Result<(), std::io::Error> {
//!     mailer.send(order.id).await
//! }
//!
//! #[tokio::main]
//! async fn main() -> outbox::Result<()> {
//!     App::from_env().state(Mailer::default()).run().await
//! }
//! ```
//!
//! # The parts
//!
//! | module or item | what it is for |
//! |---|---|
//! | [`publish()`], [`Publisher`], [`Outgoing`] | writes messages, inside your transaction |
//! | [`subscriber`](macro@subscriber), [`Subscriber`] | declares a handler and its options |
//! | [`State`], [`Context`], [`Headers`], [`Tx`], [`FromContext`] | what a handler may ask for |
//! | [`Failure`](trait@Failure), [`OrVerdict`], [`Outcome`] | what becomes of the message |
//! | [`Batch`], [`BatchOutcome`] | several messages in one run |
//! | [`Next`], [`Router`] | code around handlers, and what handlers share |
//! | [`tracking()`], [spans and traces](#spans-and-traces) | where a message comes from |
//! | [`retry`] | when a failed message is tried again |
//! | [`App`] | starts the loops, drains them on a signal |
//! | [`Stats`], [`telemetry`] | counters of deliveries; metrics; sinks of your own |
//! | [`health`] | whether the app is alive and ready, for probes |
//! | [`migrate`], [`schema`] | the tables |
//! | [`ops::Operator`], [`dlq`] | what is in the tables, and why; pauses; replays of dead letters |
//! | `cli::run` (feature `cli`) | these operations as commands of your program |
//! | `testing::TestBroker` (feature `testing`) | the same engine in memory, on virtual time |
//!
//! # What is promised
//!
//! Delivery is at least once. A committed message is handled until its handler
//! succeeds or the message fails for good. A crash can make a handler run again.
//!
//! With a dead-letter table, the deletion of a row that fails for good and its
//! dead letter are one statement (on SQLite, one transaction). Without one, which
//! is the default, a message that fails for good is deleted.
//!
#![doc = include_str!("docs/traces.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
// A library crate that only declares handlers builds without a database. Then
// nothing starts the engine.
#![cfg_attr(
    not(any(feature = "postgres", feature = "sqlite")),
    allow(dead_code, unused, unreachable_pub)
)]

#[doc(hidden)]
#[path = "private/mod.rs"]
pub mod __private;
mod app;
#[cfg(all(feature = "cli", any(feature = "postgres", feature = "sqlite")))]
pub mod cli;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub mod dlq;
mod duration;
mod engine;
mod error;
mod extract;
pub mod health;
mod hex;
mod message;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub mod ops;
pub mod prelude;
mod publish;
mod redacted;
pub mod retry;
pub mod schema;
// Hidden from users; the conformance suite sees it through `testing::store`.
#[allow(unreachable_pub, missing_docs)]
mod store;
mod subscriber;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
mod tracking;
mod unpoisoned;

pub use app::{App, RunningApp};
pub use bytes::Bytes;
pub use error::{BoxError, Error, Result, StoreError};
pub use extract::{Context, FromContext, State, States};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use extract::{Lends, Tx};
#[cfg(feature = "cbor")]
pub use message::Cbor;
#[cfg(feature = "msgpack")]
pub use message::MessagePack;
pub use message::{
    Codec, DeadLetter, DecodeError, Encoded, FailureReason, Headers, Json, MalformedHeaders, Row,
};
#[cfg(feature = "macros")]
pub use outbox_macros::Failure;
#[cfg(feature = "macros")]
#[doc = include_str!("docs/subscriber.md")]
pub use outbox_macros::subscriber;
pub use publish::{
    Connection, Outgoing, PublishError, Published, Publisher, Queue, QueueFor, QueueName,
    TimerConflict, Transaction, publish,
};
pub use schema::migrate;
pub use store::names::{NameError, TableNames};
pub use subscriber::{
    AckPolicy, Batch, BatchOutcome, ErrorRenderer, Failure, HandlerError, HandlerResult,
    IntoOutcome, IntoOutcomes, IntoQueues, IntoRouter, Item, Judged, Next, OrVerdict, Origin,
    Outcome, Router, Subscriber, Verdict,
};
pub use telemetry::{Stats, SubscriberStats};
pub use tracking::{tracking, tracking_ids};

/// What only SQLite needs: opening a file, and beginning a transaction that may write.
#[cfg(feature = "sqlite")]
pub mod sqlite {
    pub use crate::store::sqlite::{begin, connect};
}

/// The README's programs are doctests.
#[cfg(all(
    doctest,
    feature = "cli",
    feature = "macros",
    feature = "postgres",
    feature = "sqlite",
    feature = "testing"
))]
#[doc = include_str!("../README.md")]
struct Readme;
