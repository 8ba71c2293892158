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

/// The health of an app, given by [`App::health`](crate::App::health) before it starts, or
/// by [`RunningApp::health`](crate::RunningApp::health). Clones look at the same app.
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
    last: Arc<Mutex<Last>>,
    limit: Duration,
}

/// What became of the last start.
#[derive(Default)]
enum Last {
    #[default]
    None,
    Failed(Box<Report>),
    Life(Arc<Life>),
}

impl Default for Health {
    fn default() -> Self {
        Self { last: Arc::default(), limit: LIMIT }
    }
}

impl Health {
    pub(crate) fn of(life: &Arc<Life>) -> Self {
        let health = Self::default();
        health.begins(life);
        health
    }

    /// From now on it tells of this start.
    pub(crate) fn begins(&self, life: &Arc<Life>) {
        self.tells_of(Last::Life(Arc::clone(life)));
    }

    /// Or of one that has failed. Whether somebody tries again is not known of
    /// [`App::start`](crate::App::start); the others have returned.
    pub(crate) fn failed(&self, why: &Error, tries_again: bool) {
        let mut report = Report::before_start();
        report.live = tries_again;
        report.reasons = vec![format!("the start has failed: {why}")];
        self.tells_of(Last::Failed(Box::new(report)));
    }

    fn tells_of(&self, last: Last) {
        *self.last.locked() = last;
    }

    fn life(&self) -> Result<Arc<Life>, Box<Report>> {
        match &*self.last.locked() {
            Last::Life(life) => Ok(Arc::clone(life)),
            Last::Failed(report) => Err(report.clone()),
            Last::None => Err(Box::new(Report::before_start())),
        }
    }

    /// How long [`check`](Self::check) may take; 2 s by default. Give probes a little more.
    #[must_use]
    pub fn limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// What can be told without asking the database. Whether the app is ready cannot, so
    /// it is not said to be.
    #[must_use]
    pub fn glance(&self) -> Report {
        self.life().map_or_else(|report| *report, |life| life.glance())
    }

    /// Looks at everything: asks every loop whether it lives and the database for a sign
    /// of life, and compares the tables with what the app needs once a minute. Answers
    /// within the [limit](Self::limit), whatever the database does: where a look at the
    /// tables takes longer, by what the last one found.
    ///
    /// It may be called on any runtime of tokio's: the database is asked on that of the app's start.
    ///
    /// # Cancel safety
    /// A dropped call has changed nothing: it gives up what it asked the database, and a look at
    /// the tables that it began goes on.
    pub async fn check(&self) -> Report {
        let life = match self.life() {
            Ok(life) => life,
            Err(report) => return *report,
        };
        let mut report = life.glance();
        if report.phase == Phase::Running {
            let end = Instant::now() + self.limit.min(LONGEST);
            let asked = life.ask(end).await;
            let limit = self.limit;
            let late = || vec![format!("the database did not answer within {limit:?}")];
            report.answered(asked.unwrap_or_else(late));
            report.schema = life.schema();
        }
        report
    }
}

debug_only!(health: Health => report = health.glance());
