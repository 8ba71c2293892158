//! What the app tells of itself: counts, health, events for sinks.

#[cfg(feature = "metrics")]
use std::time::Duration;

use super::App;
use crate::health::Health;
use crate::telemetry::{Recorder, Stats};

impl App {
    /// Hands every event to a sink of your own, on a thread of its own. May be called for
    /// several; see [`Recorder`].
    ///
    /// Give it before you take [`App::publisher`]. What [`publish`](crate::publish()) and
    /// publishers made elsewhere publish is told to the recorders of the app that was
    /// started last.
    #[must_use]
    pub fn recorder(mut self, recorder: impl Recorder) -> Self {
        self.sinks.add(recorder, &self.stats);
        self
    }

    /// Looks into the tables this often, for the gauges of each queue that this app reads:
    /// backlog, due, leased, age of the oldest, dead letters. Every minute is often
    /// enough; never more often than every second. Without it the gauges are not there.
    ///
    /// A look is a statement (on SQLite two a queue), which reads at most 10,000 rows and
    /// dead letters of each queue by an index. Every process of an app that does it tells the same.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn queue_gauges(mut self, every: Duration) -> Self {
        self.sample_every = Some(every.max(Duration::from_secs(1)));
        self
    }

    /// Lets the text of each error of a handler go to the log, as a warning: what a dead letter
    /// keeps of it, by [`App::error_renderer`], but for one that only puts its message off. Off by
    /// default, because it may hold personal data; then a log has the kind alone, and where there
    /// is no dead-letter table nothing has the text.
    #[must_use]
    pub fn log_errors(mut self, on: bool) -> Self {
        self.logs_errors = on;
        self
    }

    /// Whether it is alive and ready. Take it before [`App::run`]; clones of the app have
    /// one health, that of the last start.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// What becomes of the deliveries of this process, counted. Take it before
    /// [`App::run`]; clones of the app count together.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats.clone()
    }
}
