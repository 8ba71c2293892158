//! One start of an app, from there to its end.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::report::{Loop, Phase, Pool, Report};
use crate::engine::Vital;

/// How often the tables are compared with what the app needs, if somebody asks.
const SCHEMA_EVERY: Duration = Duration::from_secs(60);

pub(crate) struct Life {
    phase: AtomicU8,
    /// Gone with the engine.
    vital: Weak<dyn Vital>,
    schema: Mutex<Schema>,
}

/// When the tables were last looked at, and what was wrong with them.
struct Schema {
    at: Option<Instant>,
    wrong: Vec<String>,
}

impl Life {
    /// Of an engine that has started, on tables that were found to be right.
    pub(crate) fn begin(vital: Weak<dyn Vital>) -> Arc<Self> {
        let schema = Mutex::new(Schema { at: Some(Instant::now()), wrong: Vec::new() });
        Arc::new(Self { phase: AtomicU8::new(Phase::Running as u8), vital, schema })
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            running if running == Phase::Running as u8 => Phase::Running,
            stopping if stopping == Phase::Stopping as u8 => Phase::Stopping,
            _ => Phase::Stopped,
        }
    }

    pub(super) fn glance(&self) -> Report {
        let phase = self.phase();
        let Some(vital) = self.vital.upgrade() else {
            // Dropped without a stop.
            return Report::of(Phase::Stopped);
        };
        let (pulse, pool) = (vital.pulse(), vital.connections());
        let loops = vital.loops().into_iter();
        let mut report = Report {
            listener_up: Some(pulse.listener_up),
            last_claim_age: pulse.last_claim_age,
            claims_fail: pulse.claims_fail,
            pool: Some(Pool { open: pool.open, idle: pool.idle, most: pool.most }),
            schema: self.schema(),
            loops: loops
                .map(|one| Loop { name: one.name, tasks: one.tasks, alive: one.alive })
                .collect(),
            ..Report::of(phase)
        };
        report.judge();
        report
    }

    pub(super) fn schema(&self) -> Vec<String> {
        self.lock().wrong.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Schema> {
        self.schema.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What speaks against being ready, by the database.
    pub(super) async fn ask(&self) -> Vec<String> {
        let Some(vital) = self.vital.upgrade() else { return Vec::new() };
        if let Err(silent) = vital.ask().await {
            return vec![silent.to_string()];
        }
        if self.lock().at.is_none_or(|at| at.elapsed() >= SCHEMA_EVERY) {
            match vital.schema().await {
                Ok(wrong) => *self.lock() = Schema { at: Some(Instant::now()), wrong },
                Err(failed) => return vec![failed.to_string()],
            }
        }
        self.schema()
    }

    /// The next check looks at the tables.
    #[cfg(feature = "testing")]
    pub(crate) fn forget_schema(&self) {
        self.lock().at = None;
    }

    /// Ends a loop as a panic in it would, for tests of what is told of it.
    #[cfg(feature = "testing")]
    pub(crate) fn end_loop(&self, name: &str) {
        if let Some(vital) = self.vital.upgrade() {
            vital.end_loop(name);
        }
    }
}
