//! What a handler declares: its queues, its options and how it is called.

mod batch;
mod failure;
mod kind;
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
pub(crate) use failure::{LATE, MAX_EXCEPTION_BYTES, debug_chain, storable};
pub use layer::Next;
pub(crate) use layer::{Layer, erased as layer};
pub use options::AckPolicy;
pub(crate) use options::{Batching, LONGEST, MAX_WORKERS, Options};
pub(crate) use outcome::returned;
pub use outcome::{HandlerResult, IntoOutcome, Outcome};
pub use queues::IntoQueues;
pub use registry::Registered;
pub(crate) use registry::registered;
pub use router::{IntoRouter, Router};
use run::Handler;
pub(crate) use run::{BatchFuture, Called, Few, counted};
pub use verdict::{Derived, Failure, Judged, KnownFailure, OrVerdict, Verdict};

use crate::extract::{Context, FromContext, States};
use crate::redacted::debug_only;
use crate::retry::RetryStrategy;

/// A boxed future of a handler run.
pub type HandlerFuture = Pin<Box<dyn Future<Output = HandlerResult> + Send>>;
/// Checks that the app provides what one parameter of a handler needs.
pub(crate) type Check = fn(&States) -> Result<(), String>;

/// Decodes the payload of a delivery as the handler would, and drops the value.
pub(crate) type Read = fn(&Context) -> Result<(), HandlerError>;

/// A handler with its queues and options.
///
/// `#[subscriber]` makes a `Subscriber` of every annotated fn, registers it for the app and
/// offers it as `name::subscriber()`.
///
/// # Examples
/// A subscriber made by hand:
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
    /// True when its handler is a plain fn.
    pub(crate) blocks: bool,
    /// How its handler decodes a payload; `None` if the handler decodes by itself, or not at all.
    reads: Option<Read>,
    /// The queue for what its handler returns. The start checks its name.
    publishes: Option<fn() -> String>,
    /// Outermost first.
    layers: Arc<[Layer]>,
    /// The states of its routers, which take precedence over the app's.
    pub(crate) states: States,
    pub(crate) options: Options,
}

/// Where a handler is defined in the source.
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
    /// Makes a subscriber of one or several queues, with default options.
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

    /// Makes a subscriber whose handler takes several deliveries at once. A run gets up to `size`
    /// of them: those that wait already, and those that come within
    /// [`batch_wait`](Self::batch_wait).
    ///
    /// # Examples
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

    /// Where the fn is defined.
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

    /// Puts these layers around those that it has.
    pub(crate) fn inside(&mut self, outer: &[Layer]) {
        if !outer.is_empty() {
            self.layers = outer.iter().chain(&*self.layers).cloned().collect();
        }
    }

    /// Puts a layer around the handler, inside the layers that are there already. See [`Next`].
    #[must_use]
    pub fn layer<F>(mut self, layer: impl Fn(Context, Next) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = HandlerResult> + Send + 'static,
    {
        self.layers = self.layers.iter().cloned().chain([layer::erased(layer)]).collect();
        self
    }

    /// Has the app check, before it starts, that it provides what the extractor `X` needs.
    ///
    /// Call this once for each extractor that a run makes: only one of them can take the
    /// [`Tx`](crate::Tx).
    #[must_use]
    pub fn requires<X: FromContext>(mut self) -> Self {
        self.checks.push(X::check);
        self.transactions += usize::from(X::TAKES_TRANSACTION);
        self
    }

    pub(crate) fn takes_transaction(&self) -> bool {
        self.transactions > 0
    }

    /// Says that the handler decodes payloads as `T`, so that a
    /// [`Doctor`](crate::ops::doctor::Doctor) can try the rows that wait.
    ///
    /// `#[subscriber]` says so by itself. What a handler given to [`Subscriber::new`] decodes is
    /// not visible from outside.
    ///
    /// # Examples
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
    pub(crate) fn decoder(&self) -> Option<Read> {
        self.reads
    }

    /// Sets when a failed message is tried again. See [`retry`](crate::retry).
    #[must_use]
    pub fn retry(mut self, strategy: impl RetryStrategy) -> Self {
        self.options.retry = Arc::new(strategy);
        self
    }

    /// Sets how often a row may be claimed before it is terminal; no limit by default. Every retry
    /// is a claim too, so set this higher than the number of runs that the retry strategy allows.
    #[must_use]
    pub fn max_deliveries(mut self, deliveries: u64) -> Self {
        self.options.max_deliveries = Some(deliveries);
        self
    }

    /// Sets how many runs of the handler go on at once in this process; 10 by default, 10,000 at
    /// most. A run handles one message, or one batch.
    ///
    /// A single worker handles rows in the order in which they are due, unless another process
    /// has workers too. Rows that come back are the exception.
    #[must_use]
    pub fn max_workers(mut self, workers: usize) -> Self {
        self.options.max_workers = workers;
        self
    }

    /// Sets how many rows may wait in memory for a worker, besides those that run; 4,000 by
    /// default. The rows that wait take some 32 MiB at most, and one claim gets 1,000 at most.
    ///
    /// The engine measures how fast the handler is. It claims only what will be started within
    /// 100 ms, or within half of the lease if that is shorter:
    /// - For a slow handler one row waits, or one batch.
    /// - No row waits if runs take so long that its lease would run out meanwhile.
    /// - Until the first run has ended, as many rows wait as run at once, 10 at least.
    ///
    /// A row that has waited for two thirds of its lease is given back.
    #[must_use]
    pub fn fetch_batch(mut self, rows: usize) -> Self {
        self.options.fetch_batch = rows;
        self
    }

    /// Sets how many messages a run of a handler of batches takes at most.
    #[doc(hidden)]
    #[must_use]
    pub fn batch(mut self, messages: usize) -> Self {
        self.options.batch.size = messages;
        self
    }

    /// Sets how long a run of a handler of batches waits for more messages. By default it does
    /// not wait. The limit is half of the lease.
    #[must_use]
    pub fn batch_wait(mut self, wait: Duration) -> Self {
        self.options.batch.wait = wait;
        self
    }

    /// Sets how long a claim lasts without being extended; 60 s by default. The engine extends it
    /// while the handler runs. So the rows of a dead process stay away for this long at most, or
    /// for [`max_poll`](Self::max_poll) if that is longer.
    #[must_use]
    pub fn lease_ttl(mut self, ttl: Duration) -> Self {
        self.options.lease_ttl = ttl;
        self
    }

    /// Sets the wait after a claim that got less than it asked for; 1 s by default. The actual
    /// wait is three quarters of it at least. It doubles with each claim that gets nothing. A
    /// busy subscriber claims sooner.
    #[must_use]
    pub fn min_poll(mut self, wait: Duration) -> Self {
        self.options.min_poll = wait;
        self
    }

    /// Sets the longest wait between two claims, as long as there is room for rows and no claim
    /// fails; 20 s by default. A wake or a due time cuts the wait short.
    #[must_use]
    pub fn max_poll(mut self, wait: Duration) -> Self {
        self.options.max_poll = wait;
        self
    }

    /// Sets how long a run of the handler may take; no limit by default.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.options.timeout = Some(limit);
        self
    }

    /// Sets what an error of the handler means.
    #[must_use]
    pub fn ack(mut self, policy: AckPolicy) -> Self {
        self.options.ack = policy;
        self
    }
}

debug_only!(subscriber: Subscriber => name, queues, origin);
