//! What a check found.

use std::time::Duration;

use serde::{Serialize, Serializer};

/// What a check found. As JSON, times are seconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Where the app is in its life.
    pub phase: Phase,
    /// False when a loop of a running app has ended, or [`App::run`](crate::App::run) or
    /// [`App::run_until`](crate::App::run_until) has failed to start: only a new start helps.
    pub live: bool,
    /// True when the app works: it runs, every loop lives, the database answers, claims
    /// succeed, and the tables are as they have to be.
    pub ready: bool,
    /// What speaks against it.
    pub reasons: Vec<String>,
    /// Whether wakes arrive. If not, polling finds the messages, so this alone does not
    /// make the app unready. `None` unless it runs.
    pub listener_up: Option<bool>,
    /// Since the last claim that succeeded; it may be long ago while every handler is busy.
    #[serde(rename = "last_claim_age_seconds", serialize_with = "seconds")]
    pub last_claim_age: Option<Duration>,
    /// The last claim of a subscriber was refused; the reasons name it.
    pub claims_fail: bool,
    /// Whose.
    #[serde(skip)]
    pub(super) refused: Vec<&'static str>,
    /// The engine's own connections, apart from the one that listens.
    pub pool: Option<Pool>,
    /// What is wrong with the tables, as far as the app cannot work on them.
    pub schema: Vec<String>,
    /// Every loop.
    pub loops: Vec<Loop>,
}

/// Where an app is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Phase {
    /// It has not started yet.
    Starting,
    /// It claims and handles messages.
    Running,
    /// It claims no more, and finishes what runs.
    Stopping,
    /// It has stopped.
    Stopped,
}

/// Connections of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Pool {
    /// Those that are open.
    pub open: usize,
    /// Those of them that are not in use.
    pub idle: usize,
    /// As many as there may be.
    pub most: usize,
}

/// A loop of the engine, which may have several tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Loop {
    /// `claims`, `workers`, `settlers`, `leases`, `wakes`, `watchdog` or `samples`.
    pub name: &'static str,
    /// Its tasks.
    pub tasks: usize,
    /// Those of them that live.
    pub alive: usize,
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

    pub(super) fn before_start() -> Self {
        Self::of(Phase::Starting)
    }

    /// By what is known without the database.
    pub(super) fn judge(&mut self) {
        self.reasons.clear();
        let phase = match self.phase {
            Phase::Running => None,
            Phase::Starting => Some("the app has not started yet"),
            Phase::Stopping => Some("the app is stopping"),
            Phase::Stopped => Some("the app has stopped"),
        };
        self.reasons.extend(phase.map(str::to_owned));
        // While it stops they end one after the other.
        if self.phase == Phase::Running {
            let ended = self.loops.iter().filter(|one| one.alive < one.tasks);
            let ended = ended.map(|one| format!("the loop `{}` has ended; see the log", one.name));
            self.reasons.extend(ended);
            self.live = self.reasons.is_empty();
            if self.claims_fail {
                let whose = self.refused.join(", ");
                self.reasons.push(format!("claims are refused, of {whose}; see the log"));
            }
        }
    }

    /// What the database said against being ready.
    pub(super) fn answered(&mut self, reasons: Vec<String>) {
        self.reasons.extend(reasons);
        self.ready = self.phase == Phase::Running && self.reasons.is_empty();
    }
}

#[allow(clippy::ref_option, reason = "what serde calls it with")]
fn seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs_f64()).serialize(serializer)
}
