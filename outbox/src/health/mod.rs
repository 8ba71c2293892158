//! Whether an app is alive, and ready to work: for probes, and for people.

mod life;
mod report;
#[cfg(feature = "health")]
mod router;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

pub(crate) use life::Life;
pub use report::{Loop, Phase, Pool, Report};
#[cfg(feature = "health")]
pub use router::router;

use crate::error::Error;
use crate::redacted::debug_only;
use crate::subscriber::LONGEST;
use crate::unpoisoned::Locked as _;

/// How long a check may take.
const LIMIT: Duration = Duration::from_secs(2);

/// The health of an app. [`App::health`](crate::App::health) gives it before the start, and
/// [`RunningApp::health`](crate::RunningApp::health) afterwards. Clones look at the same app.
///
/// # Examples
/// ```
/// # #[cfg(feature = "sqlite")] {
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> outbox::Result<()> {
/// # let pool = outbox::sqlite::connect("sqlite::memory:").await?;
/// # outbox::migrate(&pool).await?;
/// # let confirm = outbox::Subscriber::new("confirm", "orders", |_| async {});
/// let app = outbox::App::sqlite(pool).only([confirm]);
/// let health = app.health();
/// assert!(!health.check().await.ready);
///
/// let running = app.start().await?;
/// let report = health.check().await;
/// assert!(report.ready, "{:?}", report.reasons);
/// running.stop().await?;
/// # Ok(()) }
/// # main().unwrap(); }
/// ```
#[derive(Clone)]
pub struct Health {
    /// The last start, or what there is to report if there was none or it has failed.
    last: Arc<Mutex<Result<Arc<Life>, Box<Report>>>>,
    limit: Duration,
}

impl Default for Health {
    fn default() -> Self {
        let last = Err(Box::new(Report::of(Phase::Starting)));
        Self { last: Arc::new(Mutex::new(last)), limit: LIMIT }
    }
}

impl Health {
    pub(crate) fn of(life: &Arc<Life>) -> Self {
        let health = Self::default();
        health.begins(life);
        health
    }

    /// Reports on this start from now on.
    pub(crate) fn begins(&self, life: &Arc<Life>) {
        *self.last.locked() = Ok(Arc::clone(life));
    }

    /// Reports on a start that has failed. After a failed [`App::start`](crate::App::start)
    /// somebody may try again. After a failed `run` or `run_until` nobody does: it has returned.
    pub(crate) fn failed(&self, why: &Error, tries_again: bool) {
        let mut report = Report::of(Phase::Starting);
        report.live = tries_again;
        report.reasons = vec![format!("the start has failed: {why}")];
        *self.last.locked() = Err(Box::new(report));
    }

    fn life(&self) -> Result<Arc<Life>, Box<Report>> {
        self.last.locked().clone()
    }

    /// Sets how long [`check`](Self::check) may take; 2 s by default. Give probes a little more
    /// time.
    #[must_use]
    pub fn limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Reports what is known without asking the database. Only the database can tell whether the
    /// app is ready, so this report never says that it is.
    #[must_use]
    pub fn glance(&self) -> Report {
        self.life().map_or_else(|report| *report, |life| life.glance())
    }

    /// Checks everything:
    /// - It asks every loop whether it lives.
    /// - It asks the database for a sign of life.
    /// - It compares the tables with what the app needs, unless that succeeded within the last
    ///   minute.
    ///
    /// The answer comes within the [limit](Self::limit), whatever the database does. If a look at
    /// the tables takes longer, the result of the last look counts.
    ///
    /// It may be called on any tokio runtime. The database is asked on the runtime on which the app
    /// was started.
    ///
    /// # Cancel safety
    /// A dropped call has changed nothing. It gives up its question to the database. A look at the
    /// tables that it has begun goes on.
    pub async fn check(&self) -> Report {
        let life = match self.life() {
            Ok(life) => life,
            Err(report) => return *report,
        };
        let mut asked = None;
        if life.phase() == Phase::Running {
            let limit = self.limit;
            let late = || vec![format!("the database did not answer within {limit:?}")];
            let end = Instant::now() + limit.min(LONGEST);
            asked = Some(life.ask(end).await.unwrap_or_else(late));
        }
        // Looked at last: the app may have stopped while it was asked.
        let mut report = life.glance();
        if let Some(reasons) = asked.filter(|_| report.phase == Phase::Running) {
            report.answered(reasons);
        }
        report
    }
}

debug_only!(health: Health => report = health.glance());
