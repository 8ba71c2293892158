//! What a check found.

use std::time::Duration;

use serde::{Serialize, Serializer};

/// What a check found. In JSON, times are in seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Where the app is in its life.
    pub phase: Phase,
    /// False if a loop of a running app has ended, or if [`App::run`](crate::App::run) or
    /// [`App::run_until`](crate::App::run_until) has failed to start. Only a new start helps then.
    pub live: bool,
    /// True if the app works: it runs, every loop lives, the database answers, claims succeed, and
    /// the tables are as they have to be.
    pub ready: bool,
    /// Why the app is not ready.
    pub reasons: Vec<String>,
    /// Whether wakes arrive. If not, polling finds the messages, so this alone does not make the
    /// app unready. `None` before the app starts and once its engine is gone.
    pub listener_up: Option<bool>,
    /// The time since the last claim that succeeded. It may be long while every handler is busy.
    #[serde(rename = "last_claim_age_seconds", serialize_with = "seconds")]
    pub last_claim_age: Option<Duration>,
    /// True if the last claim of some subscriber failed. The reasons name the subscriber.
    pub claims_fail: bool,
    /// The subscribers whose last claim failed.
    #[serde(skip)]
    pub(super) refused: Vec<&'static str>,
    /// The engine's own connections, without the one that listens.
    pub pool: Option<Pool>,
    /// What is wrong with the tables, as far as it keeps the app from working on them.
    pub schema: Vec<String>,
    /// Every loop of the engine.
    pub loops: Vec<Loop>,
}

/// Where an app is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// The app has not started yet.
    Starting,
    /// The app claims and handles messages.
    Running,
    /// The app claims nothing more, and finishes what runs.
    Stopping,
    /// The app has stopped.
    Stopped,
}

/// Connections of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Pool {
    /// How many are open.
    pub open: usize,
    /// How many of the open ones are idle.
    pub idle: usize,
    /// How many there may be.
    pub most: usize,
}

/// A loop of the engine, which may have several tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Loop {
    /// The name: `claims`, `workers`, `settlers`, `leases`, `wakes`, `watchdog` or `samples`.
    pub name: &'static str,
    /// How many tasks the loop has.
    pub tasks: usize,
    /// How many of its tasks are alive.
    pub alive: usize,
}

impl Loop {
    /// What to say of it if one of its tasks has ended.
    pub(crate) fn ended(&self) -> Option<String> {
        let ended = self.alive < self.tasks;
        ended.then(|| format!("the loop `{}` has ended; see the log", self.name))
    }
}

impl Report {
    pub(super) fn of(phase: Phase) -> Self {
        let mut report = Self {
            phase,
            live: true,
            ready: false,
            reasons: Vec::new(),
            listener_up: None,
            last_claim_age: None,
            claims_fail: false,
            refused: Vec::new(),
            pool: None,
            schema: Vec::new(),
            loops: Vec::new(),
        };
        report.judge();
        report
    }

    /// Judges by what is known without the database.
    pub(super) fn judge(&mut self) {
        self.reasons.clear();
        let phase = match self.phase {
            Phase::Running => None,
            Phase::Starting => Some("the app has not started yet"),
            Phase::Stopping => Some("the app is stopping"),
            Phase::Stopped => Some("the app has stopped"),
        };
        self.reasons.extend(phase.map(str::to_owned));
        // While the app stops, its loops end one after the other.
        if self.phase == Phase::Running {
            self.reasons.extend(self.loops.iter().filter_map(Loop::ended));
            self.live = self.reasons.is_empty();
            if self.claims_fail {
                let whose = self.refused.join(", ");
                self.reasons.push(format!("claims are refused for {whose}; see the log"));
            }
        }
    }

    /// Adds what the database said against being ready.
    pub(super) fn answered(&mut self, reasons: Vec<String>) {
        self.reasons.extend(reasons);
        self.ready = self.phase == Phase::Running && self.reasons.is_empty();
    }
}

#[allow(clippy::ref_option, reason = "what serde calls it with")]
fn seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}
