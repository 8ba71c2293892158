//! What the handlers of a flow do, so that the engine sends the statement that the flow
//! is about.

use std::sync::Arc;
use std::time::Duration;

use outbox::retry::Constant;
use outbox::{BoxError, Context, Outcome, Outgoing, Publisher, Subscriber};
use outbox::{FromContext, HandlerError, Tx};
use sqlx::Postgres;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::fault::{Counts, FROZEN, LONG_LEASE};
use super::notes::Notes;
use super::stage::Stage;
use super::what::What;

/// Handled before anything is counted.
pub const FIRST: i64 = 0;
/// Shows that the app goes on after the fault.
pub const PROBE: i64 = 100;
const SOON: Duration = Duration::from_millis(50);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    Claim,
    /// What follows a wake.
    ClaimFew,
    /// And what follows that where there is a row which is not for it.
    ClaimLarge,
    /// What drains a backlog.
    ClaimFull,
    Ack,
    /// Several rows in one statement.
    BatchAck,
    /// With what the handler returned.
    AckPublishing,
    Retry,
    DeadLetter,
    Snooze,
    /// Rows that wait in memory when the app stops.
    Drain,
    Extend,
    /// The handler takes the transaction.
    Transaction,
}

impl Work {
    pub fn what(self) -> What {
        // As their files begin.
        What::Statement(match self {
            Self::Claim | Self::ClaimLarge => "-- Leases due rows, free ones",
            Self::ClaimFew => concat!(
                "-- Leases due rows as claim.sql does, for the one queue of one claim ",
                "that expects few"
            ),
            Self::ClaimFull => concat!(
                "-- Leases due rows as claim.sql does, for the one queue of one claim ",
                "that expects as many"
            ),
            Self::Ack | Self::BatchAck => {
                "-- Deletes handled rows whose lease still holds, and returns"
            }
            Self::AckPublishing => "-- Deletes handled rows whose lease still holds, and publishes",
            Self::Retry => "-- Puts failed rows off",
            Self::DeadLetter => "-- Moves rows that failed for good",
            Self::Snooze | Self::Drain => "-- Gives leases back",
            Self::Extend => "-- Starts leases anew",
            Self::Transaction => return What::Transaction,
        })
    }

    pub fn floor(self) -> Counts {
        match self {
            // BEGIN, a write, a publish, the ack, COMMIT.
            Self::Transaction => Counts { sent: 20, answered: 25 },
            // It may be prepared.
            Self::ClaimFew | Self::ClaimLarge => Counts { sent: 3, answered: 4 },
            // Preparing it and running it.
            _ => Counts { sent: 6, answered: 8 },
        }
    }

    pub fn messages(self) -> i64 {
        match self {
            Self::BatchAck | Self::Drain => 5,
            // Of which the first claim takes as many as it asks for, and leaves most.
            Self::ClaimFull => 20,
            _ => 1,
        }
    }

    /// What the audit calls that of which it is about several in one statement.
    pub fn written_together(self) -> Option<&'static str> {
        match self {
            Self::BatchAck => Some("delete"),
            Self::Drain => Some("give back"),
            _ => None,
        }
    }

    /// Whether it is about what comes once an app waits for messages.
    pub fn is_of_one_that_waits(self) -> bool {
        matches!(self, Self::ClaimFew | Self::ClaimLarge | Self::Transaction)
    }

    /// How often each handler runs where nothing fails.
    pub fn runs(self) -> usize {
        if matches!(self, Self::Retry | Self::Snooze) { 2 } else { 1 }
    }

    /// Whether the fault may be one more reason to run it: an extension may come late, and
    /// a transaction that fails is the handler's failure.
    pub fn may_run_again(self) -> bool {
        matches!(self, Self::Extend | Self::Transaction)
    }

    /// Where nothing has to wait for its end.
    pub fn lease(self) -> Duration {
        // Its handler lives for longer.
        if self == Self::Extend { Duration::from_secs(2) } else { LONG_LEASE }
    }
}

/// A handler and what it works with.
#[derive(Clone)]
pub struct Worker {
    pub work: Work,
    pub notes: Notes,
    pub publisher: Publisher,
    pub lease: Duration,
    /// The handlers of a drain wait for it.
    pub gate: Arc<Semaphore>,
}

impl Worker {
    pub fn of(work: Work, stage: &Stage, lease: Duration) -> Self {
        let (publisher, gate) = (stage.publisher.clone(), Arc::new(Semaphore::new(0)));
        Self { work, notes: Notes::default(), publisher, lease, gate }
    }

    pub fn subscriber(&self) -> Subscriber {
        let worker = self.clone();
        let run = move |context: Context| {
            let worker = worker.clone();
            async move { worker.run(context).await }
        };
        let workers = if self.work == Work::Drain { 1 } else { 5 };
        Subscriber::new("swept", "q", run)
            .lease_ttl(self.lease)
            .retry(Constant::new(SOON))
            .max_workers(workers)
            .fetch_batch(5)
            .max_poll(if self.work == Work::ClaimFew { LONG_LEASE } else { Duration::from_secs(1) })
    }

    async fn run(self, context: Context) -> Result<Outcome, BoxError> {
        let n: i64 = context.decode()?;
        let first = self.notes.starts(&context, n) == 1;
        match self.work {
            _ if n == PROBE || n == FIRST => {}
            Work::Retry if first => return Err("at first".into()),
            Work::DeadLetter => return Ok(Outcome::reject("swept")),
            Work::Snooze if first => return Ok(Outcome::Snooze(SOON)),
            Work::AckPublishing => {
                context.publisher().collect(Outgoing::new("receipts", &n))?;
            }
            // A late ack of the run before lands while this one is not over.
            Work::Ack | Work::BatchAck if !first => sleep(FROZEN * 5 / 6).await,
            Work::Drain => self.gate.acquire().await?.forget(),
            Work::Extend => sleep(self.lease * 3 / 2).await,
            Work::Transaction => self.write(&context, n).await?,
            _ => {}
        }
        self.notes.succeeds(&context);
        Ok(Outcome::Ack)
    }

    async fn write(&self, context: &Context, n: i64) -> Result<(), HandlerError> {
        let mut tx = Tx::<Postgres>::from_context(context).await?;
        sqlx::query("INSERT INTO done VALUES ($1)").bind(n).execute(&mut *tx).await?;
        self.publisher.publish(&mut tx, "receipts", &n).await?;
        Ok(())
    }
}
