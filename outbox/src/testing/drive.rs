//! Steps through claim, delivery and settlement in the test's own task. It uses the functions of
//! the engine's loops.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

use super::setup::Drive;
use super::simulate::Cast;
use super::{Call, Ending, TestBroker};
use crate::engine::{Job, Reader, Settlement, Settling, Shared, deliver, keep_leases, settle};
#[cfg(feature = "sqlite")]
use crate::error::StoreError;
#[cfg(feature = "sqlite")]
use crate::extract::Lender;
#[cfg(feature = "sqlite")]
use crate::publish::Tally;
use crate::store::memory::MemoryStore;
#[cfg(feature = "sqlite")]
use crate::store::sqlite::SqliteLender;
use crate::store::{Claim, Expects, Store, new_token};
use crate::subscriber::Few;
use crate::telemetry::Sinks;
use crate::unpoisoned::Locked as _;

/// More steps than any finite test takes.
const MAX_STEPS: usize = 100_000;

/// Told because a paused clock skips the time in which a connection would come.
const PAUSED: &str = "tokio's clock is paused, and does not wait for the database of \
    `.transactions(..)`: a transaction did not begin or commit in time; let the clock run";

/// Told because a paused clock stands still while a plain fn runs.
const UNTIMED: &str = "tokio's clock is paused, and no plain fn has a timeout on it, but this one took \
    longer than its own; let the clock run";

tokio::task_local! {
    /// The drivers whose handlers run around this. What a handler publishes to its own broker runs
    /// afterwards.
    static IN_HANDLER: Vec<usize>;
}

/// The subscribers of a broker, ready to run.
pub(super) struct Driver {
    shared: Shared<MemoryStore>,
    readers: Vec<Arc<Reader>>,
    /// One driver at a time: handlers run one after the other.
    turn: Mutex<()>,
    /// Rows were left to the driver whose turn it is.
    left: AtomicBool,
}

impl Driver {
    pub(super) fn new(store: MemoryStore, cast: Cast) -> Self {
        let Cast { subscribers, states, stats, publisher, render, logs_errors } = cast;
        // It wakes nobody: the test claims.
        let claimer = Arc::new(Notify::new());
        let mut shared = Shared::new(store, render, publisher, Sinks::default());
        shared.logs_errors = logs_errors;
        let ready = |one| Arc::new(Reader::new(one, &shared, &states, &stats, &claimer));
        let readers = subscribers.into_iter().map(ready).collect();
        Self { shared, readers, turn: Mutex::default(), left: AtomicBool::new(false) }
    }
}

impl Driver {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn in_handler(&self) -> bool {
        IN_HANDLER.try_with(|of| of.contains(&self.address())).unwrap_or_default()
    }
}

impl TestBroker {
    /// Runs everything that is due now. If another task drives, this leaves it to that task, whose
    /// handler may wait for this call. In a simulation the processes run it.
    pub(super) async fn run_due(&self, drive: &Drive) {
        match drive {
            Drive::Steps(driver) if driver.in_handler() => {}
            Drive::Steps(driver) => {
                driver.left.store(true, Ordering::SeqCst);
                self.drive_left(driver).await;
            }
            Drive::Loops(world) => world.others_first().await,
        }
    }

    async fn drive_due(&self, driver: &Driver) {
        if driver.in_handler() {
            return;
        }
        let turn = driver.turn.lock().await;
        self.rounds(driver).await;
        drop(turn);
        self.drive_left(driver).await;
    }

    /// Invariant: `left` is set before the turn is asked for, and looked at after a turn is over.
    /// So one of the two tasks sees a row.
    async fn drive_left(&self, driver: &Driver) {
        while driver.left.load(Ordering::SeqCst) {
            let Ok(_turn) = driver.turn.try_lock() else { return };
            driver.left.store(false, Ordering::SeqCst);
            self.rounds(driver).await;
        }
    }

    async fn rounds(&self, driver: &Driver) {
        for _ in 0..MAX_STEPS {
            let mut ran = 0;
            for reader in &driver.readers {
                ran += self.round(driver, reader).await;
            }
            if ran == 0 {
                return;
            }
        }
        panic!("handlers publish without end at one moment");
    }

    async fn round(&self, driver: &Driver, reader: &Arc<Reader>) -> usize {
        let options = &reader.subscriber.options;
        let claim = claim(reader, options.fetch_batch.max(options.batch.size));
        let claimed_at = Instant::now();
        let taken = self.store.claim(&[claim]).await.unwrap_or_default();
        let rows: Vec<_> = taken.into_iter().flat_map(|taken| taken.rows).collect();
        let count = rows.len();
        let deadline = claimed_at + options.lease_ttl;
        let mut jobs = rows.into_iter().map(|claimed| Job { claimed, claimed_at, deadline });
        loop {
            let run: Few<_> = jobs.by_ref().take(options.batch.size).collect();
            if run.is_empty() {
                break;
            }
            self.step(driver, reader, run).await;
        }
        count
    }

    async fn step(&self, driver: &Driver, reader: &Arc<Reader>, jobs: Few<Job>) {
        let call = |job: &Job| {
            let row = &job.claimed.row;
            Call::of(reader.subscriber.name(), row, row.headers().unwrap_or_default(), self.now())
        };
        let calls: Vec<_> = jobs.iter().map(call).collect();
        let (started, really) = (Instant::now(), std::time::Instant::now());
        let is_virtual = stands_still();
        let Shared { leases, store, .. } = &driver.shared;
        let mut around = IN_HANDLER.try_with(Clone::clone).unwrap_or_default();
        around.push(driver.address());
        let run = IN_HANDLER.scope(around, deliver(&driver.shared, reader, jobs, started, None));
        let mut settled = tokio::select! {
            // The run comes first: if it does not wait, it needs no timer.
            biased;
            settled = run => settled,
            () = keep_leases(leases, store, reader.subscriber.options.lease_ttl) => Few::new(),
        };
        if is_virtual && self.setup().states.lender().is_some() {
            assert!(!settled.iter().any(|one| is_put_off(one)), "{PAUSED}");
        }
        if let Some(limit) = reader.subscriber.options.timeout.filter(|_| is_virtual) {
            let late = reader.subscriber.blocks && really.elapsed() > limit;
            assert!(!late, "{UNTIMED}");
        }
        // The process can only die in a handler, so not of a row that is judged without a run.
        // A row that is settled already has had its run.
        let ran = settled.len() < calls.len()
            || settled.iter().any(|settling| settling.report.started.is_some());
        let crashed = ran && self.crashes();
        // The virtual time that the handler took passes on the broker's clock too. Of real time,
        // only its timeout does.
        let (took, limit) = (started.elapsed(), reader.subscriber.options.timeout);
        if is_virtual {
            self.store.advance(took);
        } else if let Some(limit) = limit.filter(|limit| took >= *limit) {
            self.store.advance(limit);
        }
        for call in calls {
            let at = settled.iter().position(|settling| settling.lease.id == call.id);
            self.finish(call, at.map(|at| settled.swap_remove(at)), crashed).await;
        }
    }

    /// Whether the process dies in this run.
    fn crashes(&self) -> bool {
        let dying = Arc::clone(&self.setup().crashes);
        let one_less = |left: usize| left.checked_sub(1);
        dying.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }

    async fn finish(&self, mut call: Call, settling: Option<Box<Settling>>, crashed: bool) {
        let Some(settling) = settling else {
            // It ran and was settled already: before its handler, or with its transaction.
            self.record(call);
            return;
        };
        let ran = settling.report.started.is_some();
        call.error_kind = settling.report.exception_type.clone().map(Cow::into_owned);
        let ending = match settling.settlement {
            Settlement::Ack { .. } => Ending::Acked,
            Settlement::Retry { delay } => Ending::Retried(delay),
            Settlement::Dead(ref cause) => Ending::Terminal(cause.reason),
            Settlement::Release { due_in, .. } => Ending::Snoozed(due_in.unwrap_or_default()),
            Settlement::Kept | Settlement::Condemned | Settlement::Abandon | Settlement::Lost => {
                Ending::Unwritten
            }
        };
        let landed = !crashed && settle(&self.store, vec![*settling]).await == 1;
        call.ending = if landed { ending } else { Ending::Unwritten };
        if ran {
            self.record(call);
        }
    }

    fn record(&self, call: Call) {
        self.calls.locked().push(call);
    }

    /// Runs what becomes due until `end`, or until nothing does.
    pub(super) async fn run_to(&self, end: Option<SystemTime>) {
        let driver = match self.drive_or_panic() {
            Drive::Steps(driver) => driver,
            Drive::Loops(world) => return world.run_to(end).await,
        };
        let mut look = self.take_over(&driver).await.is_some();
        let mut steps = 0;
        loop {
            self.drive_beside(&driver, &mut look).await;
            let wait = self.wait(&driver).await;
            let now = self.now();
            let next = wait.and_then(|wait| now.checked_add(wait));
            match (next, end) {
                (Some(next), Some(end)) if next > end => break,
                (None, _) => break,
                // A row that stays due cannot be claimed: a lease or a transaction of the test
                // holds it.
                (Some(next), _) if next <= now => break,
                (Some(next), _) => self.move_to(next),
            }
            steps += 1;
            if steps == MAX_STEPS {
                let left: BTreeSet<_> = self.store.rows().into_iter().map(|it| it.queue).collect();
                panic!(
                    "a handler of {left:?} snoozes or retries for ever, or its dead letters cannot \
                     be written; give its `retry` a limit (`max_attempts`), or let less time pass by \
                     `advance`"
                );
            }
        }
        if let Some(end) = end {
            self.move_to(end);
            self.drive_beside(&driver, &mut look).await;
        }
    }

    /// Runs what is due, and what handlers publish meanwhile in transactions of their own. It looks
    /// for the latter until there is no free connection to look with.
    async fn drive_beside(&self, driver: &Driver, look: &mut bool) {
        for _ in 0..MAX_STEPS {
            self.drive_due(driver).await;
            let taken = if *look { self.take_over(driver).await } else { None };
            *look = taken.is_some();
            if taken.unwrap_or_default() == 0 {
                return;
            }
        }
        panic!("handlers publish without end at one moment");
    }

    /// Takes over messages that were published in the database of the lent transactions, but beside
    /// these. Returns how many, or `None` if it could not look.
    async fn take_over(&self, driver: &Driver) -> Option<usize> {
        #[cfg(feature = "sqlite")]
        {
            let lender = self.setup().states.lender().cloned();
            let Some(Ok(lender)) = lender.as_ref().map(Lender::get::<SqliteLender>) else {
                return None;
            };
            let taken = async {
                let Some(messages) = lender.published_beside().await? else { return Ok(None) };
                let mut tx = self.store.begin();
                let all: Vec<_> = messages.iter().collect();
                driver.shared.publisher.insert_returned(&mut tx, &all, &mut Tally::begin()).await?;
                tx.commit();
                Ok::<_, StoreError>(Some(messages.len()))
            };
            taken
                .await
                .unwrap_or_else(|error| panic!("the database of `.transactions(..)`: {error}"))
        }
        #[cfg(not(feature = "sqlite"))]
        {
            let _ = driver;
            None
        }
    }

    async fn wait(&self, driver: &Driver) -> Option<Duration> {
        let looks: Vec<_> = driver.readers.iter().map(|reader| claim(reader, 0)).collect();
        let ahead = self.store.claim(&looks).await.unwrap_or_default();
        ahead.into_iter().filter_map(|taken| taken.next).min()
    }

    fn move_to(&self, time: SystemTime) {
        let by = time.duration_since(self.now()).unwrap_or_default();
        self.store.advance(by);
    }
}

/// Whether it was put off because its transaction did not begin or did not commit.
fn is_put_off(settling: &Settling) -> bool {
    settling.report.put_off && matches!(settling.settlement, Settlement::Release { .. })
}

/// Whether tokio's clock is paused. Tokio does not tell, so this sees whether time passes on it.
fn stands_still() -> bool {
    let (virtually, really) = (Instant::now(), std::time::Instant::now());
    while really.elapsed().is_zero() {}
    virtually.elapsed().is_zero()
}

/// What a reader claims, up to this many rows.
fn claim(reader: &Reader, limit: usize) -> Claim {
    Claim {
        queues: reader.subscriber.shared_queues(),
        limit,
        lease_ttl: reader.subscriber.options.lease_ttl,
        token: new_token(),
        after: None,
        max_deliveries: None,
        expects: Expects::Few,
    }
}
