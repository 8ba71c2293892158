//! What the app tells about itself: counts, health, events for sinks.

#[cfg(feature = "metrics")]
use std::time::Duration;

use super::App;
use crate::health::Health;
use crate::telemetry::{Recorder, Stats};

impl App {
    /// Hands events to a sink of yours, on a thread of its own; those for which it is too slow are
    /// lost. May be called for
    /// several sinks; see [`Recorder`].
    ///
    /// Call it before you take [`App::publisher`]. The recorders of the app that was started
    /// last also get the events of [`publish`](crate::publish()) and of publishers made
    /// elsewhere.
    #[must_use]
    pub fn recorder(mut self, recorder: impl Recorder) -> Self {
        self.sinks.add(recorder, &self.stats);
        self
    }

    /// Looks into the tables this often, for the gauges of each queue that this app reads:
    /// backlog, due, leased, age of the oldest, dead letters. Without it there are no such
    /// gauges. Every minute is often enough; every second is the shortest interval.
    ///
    /// A look is one statement (on SQLite, up to two for each queue). By an index it reads at most
    /// 10,000 rows and 10,000 dead letters of each queue. Every process that looks reports the
    /// same figures.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub fn queue_gauges(mut self, every: Duration) -> Self {
        self.sample_every = Some(every.max(Duration::from_secs(1)));
        self
    }

    /// Logs the text of each error of a handler, as a warning. It is the text that a dead letter
    /// keeps, made by [`App::error_renderer`]. An error that only puts its message off is not
    /// logged, except under `AckFirst`, where it puts off nothing.
    ///
    /// Off by default, because the text may hold personal data. Then the log has only the kind of
    /// an error, and without a dead-letter table the text is nowhere.
    #[must_use]
    pub fn log_errors(mut self, on: bool) -> Self {
        self.logs_errors = on;
        self
    }

    /// Whether the app is alive and ready. Take it before [`App::run`]. Clones of the app share
    /// one health, which is that of the last start.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Counts what becomes of the deliveries of this process. Take it before
    /// [`App::run`]. Clones of the app count together.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats.clone()
    }
}
