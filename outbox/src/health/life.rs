//! One start of an app, from there to its end.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::report::{Loop, Phase, Pool, Report};
use crate::engine::Vital;
use crate::unpoisoned::Locked as _;

/// How often the tables are compared with what the app needs, if somebody asks.
const SCHEMA_EVERY: Duration = Duration::from_secs(60);

pub(crate) struct Life {
    phase: AtomicU8,
    /// Gone with the engine.
    vital: Weak<dyn Vital>,
    schema: Mutex<Schema>,
    /// True while somebody looks at the tables.
    looked: watch::Sender<bool>,
}

/// When the tables were last looked at, and what was wrong with them.
struct Schema {
    at: Option<Instant>,
    wrong: Vec<String>,
    /// The last look, if it could not tell.
    failed: Option<String>,
}

impl Schema {
    fn is_due(&self) -> bool {
        self.failed.is_some() || self.at.is_none_or(|at| at.elapsed() >= SCHEMA_EVERY)
    }
}

impl Life {
    /// Of an engine that has started, on tables that were found to be right.
    pub(crate) fn begin(vital: Weak<dyn Vital>) -> Arc<Self> {
        let schema = Schema { at: Some(Instant::now()), wrong: Vec::new(), failed: None };
        let phase = AtomicU8::new(Phase::Running as u8);
        Arc::new(Self {
            phase,
            vital,
            schema: Mutex::new(schema),
            looked: watch::Sender::new(false),
        })
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

    /// What the engine says of itself; `None` when it is gone.
    pub(crate) fn vital(&self) -> Option<Arc<dyn Vital>> {
        self.vital.upgrade()
    }

    pub(super) fn glance(&self) -> Report {
        let Some(vital) = self.vital() else {
            // Dropped without a stop.
            return Report::of(Phase::Stopped);
        };
        let (pulse, pool) = (vital.pulse(), vital.connections());
        let loops = vital.loops().into_iter();
        // After the loops, which a stop ends.
        let phase = self.phase();
        let mut report = Report {
            listener_up: Some(pulse.listener_up),
            last_claim_age: pulse.last_claim_age,
            claims_fail: !pulse.refused.is_empty(),
            refused: pulse.refused,
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
        self.schema.locked()
    }

    /// What speaks against being ready, by the database, as far as it tells until then.
    pub(super) async fn ask(self: &Arc<Self>, end: Instant) -> Option<Vec<String>> {
        let Some(vital) = self.vital() else { return Some(Vec::new()) };
        if let Err(silent) = timeout_at(end, vital.ask()).await.ok()? {
            return Some(vec![silent.to_string()]);
        }
        let mut looked = self.looked.subscribe();
        if self.lock().is_due() {
            self.look(vital);
        }
        // It may take longer: then by what was found before.
        let _ = timeout_at(end, looked.wait_for(|looking| !looking)).await;
        let schema = self.lock();
        let failed = schema.failed.clone().into_iter();
        Some(failed.chain(schema.wrong.clone()).collect())
    }

    /// Looks at the tables, for all who ask meanwhile.
    fn look(self: &Arc<Self>, vital: Arc<dyn Vital>) {
        if self.looked.send_replace(true) {
            return;
        }
        let life = Arc::clone(self);
        let looking = Looking(Arc::clone(self));
        tokio::spawn(async move {
            let found = AssertUnwindSafe(vital.schema()).catch_unwind().await;
            let mut schema = life.lock();
            match found {
                Ok(Ok(wrong)) => *schema = Schema { at: Some(Instant::now()), wrong, failed: None },
                Ok(Err(failed)) => schema.failed = Some(failed.to_string()),
                Err(_) => schema.failed = Some("to look at the tables panicked".into()),
            }
            drop((schema, looking));
        });
    }

    /// The next check looks at the tables.
    #[cfg(feature = "testing")]
    pub(crate) fn forget_schema(&self) {
        self.lock().at = None;
    }

    /// Ends a loop as a panic in it would, for tests of what is told of it.
    #[cfg(feature = "testing")]
    pub(crate) fn end_loop(&self, name: &str) {
        if let Some(vital) = self.vital() {
            vital.end_loop(name);
        }
    }
}

/// A look at the tables, whatever ends it: the runtime that it runs on may be gone before.
struct Looking(Arc<Life>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.looked.send_replace(false);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::engine::{LoopState, Reading};
    use crate::error::StoreError;
    use crate::store::Connections;

    const SECOND: Duration = Duration::from_secs(1);

    /// Answers a ping at once, and takes long to look at the tables.
    struct Far;

    impl Vital for Far {
        fn loops(&self) -> Vec<LoopState> {
            Vec::new()
        }

        fn pulse(&self) -> Reading {
            Reading::default()
        }

        fn connections(&self) -> Connections {
            Connections::default()
        }

        fn ask(&self) -> BoxFuture<'_, Result<(), StoreError>> {
            Box::pin(async { Ok(()) })
        }

        fn schema(&self) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
            Box::pin(async {
                tokio::time::sleep(5 * SECOND).await;
                Ok(vec!["a column is missing".into()])
            })
        }

        #[cfg(feature = "testing")]
        fn end_loop(&self, _: &str) {}

        #[cfg(feature = "testing")]
        fn end_loops(&self) {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_at_the_tables_that_takes_longer_than_a_check_is_made_once_and_counts() {
        let far: Arc<dyn Vital> = Arc::new(Far);
        let life = Life::begin(Arc::downgrade(&far));
        tokio::time::sleep(SCHEMA_EVERY).await;
        for _ in 0..2 {
            let asked = life.ask(Instant::now() + 2 * SECOND).await;
            assert_eq!(asked, Some(Vec::new()), "by what was found before");
        }
        let asked = life.ask(Instant::now() + 2 * SECOND).await;
        assert_eq!(asked, Some(vec!["a column is missing".into()]));
    }

    /// As where a server of probes that is no async one makes a runtime for each.
    #[test]
    fn a_look_that_ends_with_its_runtime_keeps_no_later_one_away() {
        let far: Arc<dyn Vital> = Arc::new(Far);
        let life = Life::begin(Arc::downgrade(&far));
        let ask = |limit| {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_time().start_paused(true).build().unwrap();
            runtime.block_on(async {
                tokio::time::sleep(SCHEMA_EVERY).await;
                life.ask(Instant::now() + limit).await
            })
        };
        assert_eq!(ask(2 * SECOND), Some(Vec::new()));
        assert_eq!(ask(10 * SECOND), Some(vec!["a column is missing".into()]));
    }
}
