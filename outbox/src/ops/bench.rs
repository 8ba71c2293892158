//! Measures how fast messages go through the tables of this database.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Operator, on_desk};
use crate::app::App;
use crate::error::{Error, Result, StoreError};
use crate::extract::Context;
use crate::publish::Outgoing;
use crate::subscriber::Subscriber;

/// How many messages one transaction publishes.
const BATCH: usize = 500;
/// How many messages are published with a commit each, to see how long a commit takes.
const COMMITS: usize = 100;
/// How many rows one statement of the cleaning up deletes.
const CLEANED: i64 = 10_000;
/// How long the cleaning up waits for rows that others have locked, and how often it looks.
const LOCKED: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(100);
/// If no message is handled for this long, something is wrong.
const STALLED: Duration = Duration::from_secs(30);

/// The load of a measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Load {
    /// How many messages; 10,000 by default.
    pub messages: usize,
    /// Bytes of each payload; 100 by default.
    pub payload_bytes: usize,
}

impl Default for Load {
    fn default() -> Self {
        Self { messages: 10_000, payload_bytes: 100 }
    }
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Measured {
    /// Messages published a second: 500 in a transaction, one transaction at a time. `None` with
    /// 100 messages or fewer, which are published one by one.
    pub published_per_second: Option<f64>,
    /// Messages handled a second by a handler that does nothing, from its first run until all are
    /// acked. Of a few hundred messages most are claimed by then.
    pub handled_per_second: f64,
    /// The median time of a transaction that publishes one message. On PostgreSQL that is a flush
    /// of the server's disk and four or five round trips: `BEGIN`, limits, the insert, `COMMIT`, and
    /// before them the ping of a pool that tests its connections.
    pub commit_median: Duration,
    /// The longest time of such a transaction; see [`Measured::commit_median`].
    pub commit_max: Duration,
}

/// A measurement on the real tables, in a queue of its own that no other program reads. None of
/// the app's handlers runs.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> outbox::Result<()> {
/// # #[cfg(feature = "sqlite")] {
/// use outbox::ops::Load;
/// # let folder = std::env::temp_dir().join(format!("outbox-bench-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// # let url = format!("sqlite:{}", folder.join("shop.db").display());
/// let pool = outbox::sqlite::connect(&url).await?;     // "sqlite:shop.db"
/// outbox::migrate(&pool).await?;
///
/// let mut load = Load::default();
/// load.messages = 200;
/// let bench = outbox::App::sqlite(pool).bench(load)?;
/// let measured = bench.run().await;
/// bench.clean_up().await?;
/// println!("{:.0} messages a second", measured?.handled_per_second);
/// # std::fs::remove_dir_all(folder).unwrap();
/// # }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Bench {
    app: App,
    operator: Operator,
    queue: String,
    load: Load,
    /// Whether messages may be in the queue.
    published: Arc<AtomicBool>,
    interrupted: CancellationToken,
}

impl App {
    /// A measurement on this app's tables, with its settings.
    ///
    /// # Errors
    /// As [`App::operator`].
    pub fn bench(&self, load: Load) -> Result<Bench> {
        Ok(Bench {
            app: self.clone(),
            operator: self.operator()?,
            queue: format!("outbox_bench_{}", Uuid::new_v4().simple()),
            load,
            published: Arc::default(),
            interrupted: CancellationToken::new(),
        })
    }
}

impl Bench {
    /// The queue that the messages go through.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// Whether a [`run`](Self::run) of this or of a clone may have published messages.
    #[cfg(feature = "cli")]
    pub(crate) fn has_published(&self) -> bool {
        self.published.load(Ordering::Relaxed)
    }

    /// Ends a [`run`](Self::run) of this or of a clone soon, with an error.
    pub fn interrupt(&self) {
        self.interrupted.cancel();
    }

    /// Publishes the messages, then handles them. Call [`clean_up`](Self::clean_up) afterwards,
    /// even if it fails.
    ///
    /// # Errors
    /// When the database fails, when no message is handled for 30 s, or when it was
    /// [interrupted](Self::interrupt).
    ///
    /// # Cancel safety
    /// A dropped call leaves messages behind; use [`interrupt`](Self::interrupt) instead.
    pub async fn run(&self) -> Result<Measured> {
        self.operator.reach().await?;
        let commits = self.commits().await?;
        let began = Instant::now();
        let mut left = self.load.messages.saturating_sub(commits.len());
        let published = left;
        while left > 0 {
            let batch = left.min(BATCH);
            self.publish(batch).await?;
            left -= batch;
        }
        let publishing = began.elapsed();
        let handling = self.handle().await?;
        Ok(Measured {
            published_per_second: (published > 0).then(|| rate(published, publishing)),
            handled_per_second: rate(self.load.messages, handling),
            commit_median: commits.get(commits.len() / 2).copied().unwrap_or_default(),
            commit_max: commits.last().copied().unwrap_or_default(),
        })
    }

    /// How long each commit took, the shortest first.
    async fn commits(&self) -> Result<Vec<Duration>> {
        let mut took = Vec::new();
        for _ in 0..self.load.messages.min(COMMITS) {
            let began = Instant::now();
            self.publish(1).await?;
            took.push(began.elapsed());
        }
        took.sort_unstable();
        Ok(took)
    }

    async fn publish(&self, messages: usize) -> Result<()> {
        if self.interrupted.is_cancelled() {
            return Err(interrupted());
        }
        let payload = bytes::Bytes::from(vec![b'x'; self.load.payload_bytes]);
        let message = || Outgoing::raw(&self.queue, payload.clone());
        let batch: Vec<_> = (0..messages).map(|_| message()).collect();
        on_desk!(self.operator, desk => {
            let mut tx = desk.writing("publish").await?;
            self.app.publisher().publish_batch(&mut tx, batch).await?;
            // The messages may be there even if the commit fails.
            self.published.store(true, Ordering::Relaxed);
            Ok(tx.commit().await.map_err(StoreError::of("publish"))?)
        })
    }

    /// The time from the first run of the handler until every message is acked.
    async fn handle(&self) -> Result<Duration> {
        let all = self.load.messages as u64;
        if all == 0 {
            return Ok(Duration::ZERO);
        }
        let first = Arc::new(OnceLock::new());
        let begun = Arc::clone(&first);
        let handler = Subscriber::new("bench", self.queue.as_str(), move |_: Context| {
            begun.get_or_init(Instant::now);
            async {}
        });
        let app = self.app.instead(handler);
        let stats = app.stats();
        let acked = || stats.subscribers().iter().map(|one| one.acked).sum::<u64>();
        let running = app.start().await?;
        let ended = tokio::select! {
            () = until(Duration::from_millis(1), || acked() >= all) => {
                Ok(first.get().map(Instant::elapsed).unwrap_or_default())
            }
            () = self.interrupted.cancelled() => Err(interrupted()),
            () = stall(acked) => Err(stalled()),
        };
        running.stop().await?;
        ended
    }

    /// Deletes the messages that are left, and returns how many there were. On PostgreSQL it waits
    /// up to 5 s for messages that another transaction has locked.
    ///
    /// # Errors
    /// When the database fails, or messages stay locked. Messages may then still be in the queue
    /// [`queue`](Self::queue).
    ///
    /// # Cancel safety
    /// A dropped call may leave messages; call it again.
    pub async fn clean_up(&self) -> Result<u64> {
        let mut deleted = 0;
        let mut end = Instant::now() + LOCKED;
        loop {
            let some =
                on_desk!(self.operator, desk => desk.clean_load(&self.queue, CLEANED).await)?;
            deleted += some;
            if some > 0 {
                end = Instant::now() + LOCKED;
                continue;
            }
            // The deletion passes by what others have locked.
            let left = on_desk!(self.operator, desk => desk.peek(&self.queue, 1, 0).await)?;
            if left.is_empty() {
                return Ok(deleted);
            }
            if Instant::now() >= end {
                let queue = &self.queue;
                let why = format!("others have locked messages of the queue {queue}; try again");
                return Err(StoreError::new("clean up", why, true).into());
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Looks this often.
async fn until(every: Duration, mut done: impl FnMut() -> bool) {
    while !done() {
        tokio::time::sleep(every).await;
    }
}

/// Returns when nothing is handled any more.
async fn stall(handled: impl Fn() -> u64) {
    let mut before = None;
    until(STALLED, || {
        let now = Some(handled());
        std::mem::replace(&mut before, now) == now
    })
    .await;
}

fn stalled() -> Error {
    let told = format!(
        "no message was handled for {STALLED:?}; see the log for the reason: claiming needs the \
         rights of a consumer"
    );
    crate::error::StoreError::new("measure", told, false).into()
}

fn interrupted() -> Error {
    crate::error::StoreError::new("measure", "it was interrupted", false).into()
}

fn rate(messages: usize, took: Duration) -> f64 {
    if took.is_zero() { 0.0 } else { messages as f64 / took.as_secs_f64() }
}
