//! What a handler declares: its queues, its options and how it is called.

mod batch;
mod failure;
mod layer;
mod options;
mod outcome;
mod problems;
mod queues;
mod registry;
mod router;
mod run;
mod verdict;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use batch::{Batch, BatchOutcome, IntoOutcomes, Item};
pub use failure::{ErrorRenderer, HandlerError};
pub(crate) use failure::{MAX_EXCEPTION_BYTES, debug_chain, storable};
pub use layer::Next;
pub(crate) use layer::{Layer, erased as layer};
pub use options::AckPolicy;
pub(crate) use options::{Batching, LONGEST, Options};
pub(crate) use outcome::returned;
pub use outcome::{HandlerResult, IntoOutcome, Outcome};
pub use queues::IntoQueues;
pub use registry::Registered;
pub(crate) use registry::registered;
pub use router::{IntoRouter, Router};
use run::Handler;
pub(crate) use run::{BatchFuture, Called, Few};
pub use verdict::{Derived, Failure, Judged, KnownFailure, OrVerdict, Verdict};

use crate::extract::{Context, FromContext, States};
use crate::redacted::debug_only;
use crate::retry::RetryStrategy;

/// A boxed future of a handler run.
pub type HandlerFuture = Pin<Box<dyn Future<Output = HandlerResult> + Send>>;
/// Asks one parameter of a handler whether the app gives it what it needs.
pub(crate) type Check = fn(&States) -> Result<(), String>;

/// Decodes the payload of a delivery as the handler would, and drops it.
pub(crate) type Read = fn(&Context) -> Result<(), HandlerError>;

/// A handler with its queues and options.
///
/// `#[subscriber]` makes one of every annotated fn, registers it for the app,
/// and offers it as `name::subscriber()`. By hand:
///
/// ```
/// use outbox::{Context, Subscriber};
/// use std::time::Duration;
///
/// let audit = Subscriber::new("audit", ["orders", "payments"], |ctx: Context| async move {
///     println!("{} bytes on {}", ctx.payload().len(), ctx.queue());
/// })
/// .max_workers(1)
/// .timeout(Duration::from_secs(5));
/// assert_eq!(audit.queues(), ["orders", "payments"]);
/// ```
#[derive(Clone)]
pub struct Subscriber {
    name: &'static str,
    origin: Origin,
    queues: Arc<[String]>,
    handler: Handler,
    checks: Vec<Check>,
    /// How many of its parameters take a `Tx`.
    transactions: usize,
    /// Its handler is a plain fn.
    pub(crate) blocks: bool,
    /// `None`: the handler decodes by itself, if at all.
    reads: Option<Read>,
    /// Where it publishes what its handler returns, asked at the start.
    publishes: Option<fn() -> String>,
    /// The outermost first.
    layers: Arc<[Layer]>,
    /// Of its routers, over the app's.
    pub(crate) states: States,
    pub(crate) options: Options,
}

/// Where a handler stands in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The module path.
    pub module: &'static str,
    /// The file, as the compiler names it.
    pub file: &'static str,
    /// The line of the fn's name.
    pub line: u32,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl Subscriber {
    /// A subscriber of one or several queues, with default options.
    #[track_caller]
    pub fn new<Q, H, F>(name: &'static str, queues: Q, handler: H) -> Self
    where
        Q: IntoQueues,
        H: Fn(Context) -> F + Send + Sync + 'static,
        F: Future<Output: IntoOutcome> + Send + 'static,
    {
        let place = std::panic::Location::caller();
        let origin = Origin { module: "", file: place.file(), line: place.line() };
        Self::at(name, origin, queues, move |context| {
            let run = handler(context.clone());
            Box::pin(async move { returned(run.await, &context) })
        })
    }

    /// A subscriber whose handler takes several deliveries at once: up to `size`,
    /// as many as there are, or come within [`batch_wait`](Self::batch_wait).
    ///
    /// ```
    /// use outbox::{Context, Subscriber};
    ///
    /// let count = Subscriber::batches("count", "clicks", 100, |clicks: Vec<Context>| async move {
    ///     println!("{} clicks", clicks.len());
    /// });
    /// ```
    #[track_caller]
    pub fn batches<Q, H, F>(name: &'static str, queues: Q, size: usize, handler: H) -> Self
    where
        Q: IntoQueues,
        H: Fn(Vec<Context>) -> F + Send + Sync + 'static,
        F: Future<Output: IntoOutcomes> + Send + 'static,
    {
        let place = std::panic::Location::caller();
        let origin = Origin { module: "", file: place.file(), line: place.line() };
        let batches = Self::batches_at(name, origin, queues, move |deliveries| {
            let run = handler(deliveries.clone());
            Box::pin(async move { run.await.into_outcomes(&deliveries) })
        });
        batches.batch(size)
    }

    pub(crate) fn at(
        name: &'static str,
        origin: Origin,
        queues: impl IntoQueues,
        handler: impl Fn(Context) -> HandlerFuture + Send + Sync + 'static,
    ) -> Self {
        Self::calling(name, origin, queues, Handler::One(Arc::new(handler)))
    }

    pub(crate) fn batches_at(
        name: &'static str,
        origin: Origin,
        queues: impl IntoQueues,
        handler: impl Fn(Vec<Context>) -> BatchFuture + Send + Sync + 'static,
    ) -> Self {
        Self::calling(name, origin, queues, Handler::Many(Arc::new(handler)))
    }

    fn calling(
        name: &'static str,
        origin: Origin,
        queues: impl IntoQueues,
        handler: Handler,
    ) -> Self {
        Self {
            name,
            origin,
            queues: queues.into_queues().into(),
            handler,
            checks: Vec::new(),
            transactions: 0,
            blocks: false,
            reads: None,
            publishes: None,
            layers: Arc::default(),
            states: States::default(),
            options: Options::default(),
        }
    }

    /// The name of the fn.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Where the fn stands.
    #[must_use]
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// The queues it reads.
    #[must_use]
    pub fn queues(&self) -> &[String] {
        &self.queues
    }

    pub(crate) fn shared_queues(&self) -> Arc<[String]> {
        Arc::clone(&self.queues)
    }

    pub(crate) fn call(&self, deliveries: Few<Context>) -> Called {
        self.handler.call(&self.layers, deliveries)
    }

    /// Puts it inside these layers.
    pub(crate) fn inside(&mut self, outer: &[Layer]) {
        if !outer.is_empty() {
            self.layers = outer.iter().chain(&*self.layers).cloned().collect();
        }
    }

    /// Puts a layer around the handler, inside those there are; see [`Next`].
    #[must_use]
    pub fn layer<F>(mut self, layer: impl Fn(Context, Next) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = HandlerResult> + Send + 'static,
    {
        self.layers = self.layers.iter().cloned().chain([layer::erased(layer)]).collect();
        self
    }

    /// Has the app checked, before it starts, for what the extractor `X` needs: once for each
    /// that a run makes, because only one of them can take the [`Tx`](crate::Tx).
    #[must_use]
    pub fn requires<X: FromContext>(mut self) -> Self {
        self.checks.push(X::check);
        self.transactions += usize::from(X::TAKES_TRANSACTION);
        self
    }

    pub(crate) fn takes_transaction(&self) -> bool {
        self.transactions > 0
    }

    /// Says that its handler decodes payloads as `T`, so that a
    /// [`Doctor`](crate::ops::doctor::Doctor) can try the rows that wait. `#[subscriber]`
    /// says so by itself; a handler of [`Subscriber::new`] decodes where nobody sees it.
    ///
    /// ```
    /// use outbox::{Context, Subscriber};
    ///
    /// let count = Subscriber::new("count", "clicks", |click: Context| async move {
    ///     click.decode::<u64>().map(drop)
    /// })
    /// .decodes::<u64>();
    /// ```
    #[must_use]
    pub fn decodes<T: serde::de::DeserializeOwned>(self) -> Self {
        self.reads(crate::__private::batch::reads::<T>)
    }

    #[doc(hidden)]
    #[must_use]
    pub fn reads(mut self, read: fn(&Context) -> Result<(), HandlerError>) -> Self {
        self.reads = Some(read);
        self
    }

    #[doc(hidden)]
    #[must_use]
    pub fn blocks(mut self) -> Self {
        self.blocks = true;
        self
    }

    #[doc(hidden)]
    #[must_use]
    pub fn publishes(mut self, queue: fn() -> String) -> Self {
        self.publishes = Some(queue);
        self
    }

    /// How to try a payload, if that is known.
    pub(crate) fn reader(&self) -> Option<Read> {
        self.reads
    }

    /// When a failed message is tried again; see [`retry`](crate::retry).
    #[must_use]
    pub fn retry(mut self, strategy: impl RetryStrategy) -> Self {
        self.options.retry = Arc::new(strategy);
        self
    }

    /// How often a row may be claimed before it is terminal; no limit by default. Retries are
    /// claims, too: the strategy says how often a message is tried, and this is to be more.
    #[must_use]
    pub fn max_deliveries(mut self, deliveries: u64) -> Self {
        self.options.max_deliveries = Some(deliveries);
        self
    }

    /// How many runs of the handler go on at once in this process, each of one message or
    /// of one batch; 10 by default, 10,000 at most. One, where no other process has any, handles
    /// rows in the order in which they are due, but for those that come back.
    #[must_use]
    pub fn max_workers(mut self, workers: usize) -> Self {
        self.options.max_workers = workers;
        self
    }

    /// How many rows may wait in memory for a worker, beside those that run; 4,000 by
    /// default, and no more than some 32 MiB of them. At most 1,000 come with one claim.
    /// The engine measures how fast the handler is, and claims only what will be started
    /// within 100 ms, or half of a shorter lease: of slow handlers one row waits, and none where
    /// runs take so long that its lease would run out meanwhile. Until the first run has
    /// ended as many wait as run at once, 10 at least. What has waited for two thirds of its lease
    /// is given back.
    #[must_use]
    pub fn fetch_batch(mut self, rows: usize) -> Self {
        self.options.fetch_batch = rows;
        self
    }

    /// The most messages of one run, of a handler of batches.
    #[doc(hidden)]
    #[must_use]
    pub fn batch(mut self, messages: usize) -> Self {
        self.options.batch.size = messages;
        self
    }

    /// How long a run of a handler of batches waits for more messages than there
    /// are; not at all by default, and half of the lease at most.
    #[must_use]
    pub fn batch_wait(mut self, wait: Duration) -> Self {
        self.options.batch.wait = wait;
        self
    }

    /// How long a claim lasts without being extended; 60 s by default. It is
    /// extended while the handler runs, so this bounds how long the rows of a
    /// dead process stay away, or [`max_poll`](Self::max_poll) if that is longer.
    #[must_use]
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.options.lease_ttl = ttl;
        self
    }

    /// The wait after a claim that got less than it asked for, three quarters of it at
    /// least; 1 s by default. It doubles with each claim that got nothing. A busy
    /// subscriber looks sooner.
    #[must_use]
    pub fn min_poll(mut self, wait: Duration) -> Self {
        self.options.min_poll = wait;
        self
    }

    /// The longest wait between two claims, as long as there is room for rows and no claim
    /// fails; 20 s by default. Wakes and due times cut it short.
    #[must_use]
    pub fn max_poll(mut self, wait: Duration) -> Self {
        self.options.max_poll = wait;
        self
    }

    /// How long a run of the handler may take; no limit by default.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.options.timeout = Some(limit);
        self
    }

    /// What an error of the handler means.
    #[must_use]
    pub fn ack(mut self, policy: AckPolicy) -> Self {
        self.options.ack = policy;
        self
    }
}

debug_only!(subscriber: Subscriber => name, queues, origin);
