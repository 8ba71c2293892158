//! One start of an app, up to its end.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::report::{Phase, Pool, Report};
use crate::engine::Vital;
use crate::error::StoreError;
use crate::unpoisoned::Locked as _;

/// How often at most the tables are compared with what the app needs, if somebody asks.
const SCHEMA_EVERY: Duration = Duration::from_secs(60);

pub(crate) struct Life {
    phase: AtomicU8,
    /// Gone with the engine.
    vital: Weak<dyn Vital>,
    /// The runtime of the engine, on which the database is asked, whoever wants to know. A
    /// connection that is opened for the question belongs to the engine from then on, and lives
    /// no longer than the runtime that opened it. The runtime of a probe may end with its answer.
    runtime: Handle,
    schema: Mutex<Schema>,
    /// True while somebody looks at the tables.
    looked: watch::Sender<bool>,
}

/// When the tables were last looked at, and what was wrong with them.
struct Schema {
    at: Option<Instant>,
    wrong: Vec<String>,
    /// Why the last look failed, if it did.
    failed: Option<String>,
}

impl Schema {
    fn is_due(&self) -> bool {
        self.failed.is_some() || self.at.is_none_or(|at| at.elapsed() >= SCHEMA_EVERY)
    }
}

impl Life {
    /// The life of an engine that has started on this runtime, on tables that were found right.
    pub(crate) fn begin(vital: Weak<dyn Vital>) -> Arc<Self> {
        let schema = Schema { at: Some(Instant::now()), wrong: Vec::new(), failed: None };
        let phase = AtomicU8::new(Phase::Running as u8);
        Arc::new(Self {
            phase,
            vital,
            runtime: Handle::current(),
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

    /// What the engine says about itself. `None` once it is gone.
    pub(crate) fn vital(&self) -> Option<Arc<dyn Vital>> {
        self.vital.upgrade()
    }

    pub(super) fn glance(&self) -> Report {
        let Some(vital) = self.vital() else {
            // The app was dropped without a stop.
            return Report::of(Phase::Stopped);
        };
        let (pulse, pool) = (vital.pulse(), vital.connections());
        let loops = vital.loops();
        // Read after the loops, because a stop ends them.
        let phase = self.phase();
        let mut report = Report {
            listener_up: Some(pulse.listener_up),
            last_claim_age: pulse.last_claim_age,
            claims_fail: !pulse.refused.is_empty(),
            refused: pulse.refused,
            pool: Some(Pool { open: pool.open, idle: pool.idle, most: pool.most }),
            schema: self.schema(),
            loops,
            ..Report::of(phase)
        };
        report.judge();
        report
    }

    pub(super) fn schema(&self) -> Vec<String> {
        self.schema.locked().wrong.clone()
    }

    /// Asks the database for reasons against being ready. `None` if it gave no answer by `end`.
    pub(super) async fn ask(self: &Arc<Self>, end: Instant) -> Option<Vec<String>> {
        let Some(vital) = self.vital() else { return Some(Vec::new()) };
        if let Err(silent) = self.sign_of_life(&vital, end).await? {
            return Some(vec![silent.to_string()]);
        }
        let mut looked = self.looked.subscribe();
        if self.schema.locked().is_due() {
            self.look(vital);
        }
        // If the look takes longer, what was found before counts.
        let _ = timeout_at(end, looked.wait_for(|looking| !looking)).await;
        let schema = self.schema.locked();
        let failed = schema.failed.clone().into_iter();
        Some(failed.chain(schema.wrong.clone()).collect())
    }

    /// Asks the database for a sign of life. `None` if it gave none by `end`. If this is dropped,
    /// the question ends soon.
    pub(crate) async fn sign_of_life(
        &self,
        vital: &Arc<dyn Vital>,
        end: Instant,
    ) -> Option<Result<(), StoreError>> {
        let (vital, begun) = (Arc::clone(vital), Arc::new(AtomicBool::new(false)));
        let begins = Arc::clone(&begun);
        let asked = self.runtime.spawn(async move {
            begins.store(true, Ordering::Relaxed);
            vital.ask().await
        });
        let failed = |why| Some(Err(StoreError::new("ping", why, false)));
        match timeout_at(end, AbortOnDropHandle::new(asked)).await {
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(ended)) if ended.is_panic() => failed("asking for it panicked; see the log"),
            Ok(Err(_)) => failed("the app's runtime has ended"),
            Err(_) if begun.load(Ordering::Relaxed) => None,
            Err(_) => failed("handlers block the app's runtime: the database was not asked"),
        }
    }

    /// Looks at the tables, once for all who ask meanwhile.
    fn look(self: &Arc<Self>, vital: Arc<dyn Vital>) {
        if self.looked.send_replace(true) {
            return;
        }
        let life = Arc::clone(self);
        let looking = Looking(Arc::clone(self));
        self.runtime.spawn(async move {
            let found = AssertUnwindSafe(vital.schema()).catch_unwind().await;
            let mut schema = life.schema.locked();
            match found {
                Ok(Ok(wrong)) => *schema = Schema { at: Some(Instant::now()), wrong, failed: None },
                Ok(Err(failed)) => schema.failed = Some(failed.to_string()),
                Err(_) => schema.failed = Some("looking at the tables panicked".into()),
            }
            drop((schema, looking));
        });
    }

    /// The next check looks at the tables.
    #[cfg(feature = "testing")]
    pub(crate) fn forget_schema(&self) {
        self.schema.locked().at = None;
    }

    /// Ends a loop as a panic in it would, for tests.
    #[cfg(feature = "testing")]
    pub(crate) fn end_loop(&self, name: &str) {
        if let Some(vital) = self.vital() {
            vital.end_loop(name);
        }
    }
}

/// A look at the tables. Its drop notes the end of it, even if the runtime ends first.
struct Looking(Arc<Life>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.looked.send_replace(false);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;
    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::engine::Reading;
    use crate::error::StoreError;
    use crate::health::{Health, Loop};
    use crate::store::Connections;

    const SECOND: Duration = Duration::from_secs(1);

    /// Notes on which threads it is asked, and lets each look at the tables wait for a permit.
    struct Told {
        on: Mutex<Vec<String>>,
        permits: Semaphore,
    }

    impl Told {
        fn new() -> Self {
            Self { on: Mutex::default(), permits: Semaphore::new(0) }
        }

        fn here(&self) {
            let here = std::thread::current().name().unwrap_or_default().to_owned();
            self.on.locked().push(here);
        }
    }

    impl Vital for Told {
        fn loops(&self) -> Vec<Loop> {
            Vec::new()
        }

        fn pulse(&self) -> Reading {
            Reading::default()
        }

        fn connections(&self) -> Connections {
            Connections::default()
        }

        fn ask(&self) -> BoxFuture<'_, Result<(), StoreError>> {
            Box::pin(async {
                self.here();
                assert!(!self.permits.is_closed(), "as a broken driver does");
                Ok(())
            })
        }

        fn schema(&self) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
            Box::pin(async {
                self.here();
                self.permits.acquire().await.unwrap().forget();
                Ok(vec!["a column is missing".into()])
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_at_the_tables_that_takes_longer_than_a_check_is_made_once_and_counts() {
        let told = Arc::new(Told::new());
        let vital: Arc<dyn Vital> = Arc::clone(&told) as _;
        let life = Life::begin(Arc::downgrade(&vital));
        tokio::time::sleep(SCHEMA_EVERY).await;
        for _ in 0..2 {
            let asked = life.ask(Instant::now() + 2 * SECOND).await;
            assert_eq!(asked, Some(Vec::new()), "by what was found before");
        }
        told.permits.add_permits(1);
        let asked = life.ask(Instant::now() + 2 * SECOND).await;
        assert_eq!(asked, Some(vec!["a column is missing".into()]));
        assert_eq!(told.on.locked().len(), 4, "three signs of life, and one look");
    }

    #[tokio::test(start_paused = true)]
    async fn an_app_that_stops_while_it_is_asked_is_not_told_to_be_ready() {
        let told = Arc::new(Told::new());
        let vital: Arc<dyn Vital> = Arc::clone(&told) as _;
        let life = Life::begin(Arc::downgrade(&vital));
        let health = Health::of(&life);
        assert!(health.check().await.ready);
        for phase in [Phase::Stopping, Phase::Stopped] {
            life.enter(Phase::Running);
            // Its look at the tables takes until the limit.
            tokio::time::sleep(SCHEMA_EVERY).await;
            let stops = async {
                tokio::time::sleep(SECOND).await;
                life.enter(phase);
            };
            let (report, ()) = tokio::join!(health.check(), stops);
            assert_eq!((report.ready, report.phase), (false, phase));
            assert_eq!(report.reasons.len(), 1, "{:?}", report.reasons);
        }
    }

    /// The runtime of a start, what runs on it, and its life.
    fn started() -> (Runtime, Arc<Told>, Arc<Life>) {
        let start = Builder::new_multi_thread().worker_threads(1).thread_name("start").build();
        let start = start.unwrap();
        let told = Arc::new(Told::new());
        let vital: Arc<dyn Vital> = Arc::clone(&told) as _;
        let life = start.block_on(async { Life::begin(Arc::downgrade(&vital)) });
        (start, told, life)
    }

    /// Asks as a blocking server of probes does: with a runtime for each probe.
    fn probe(life: &Arc<Life>, limit: Duration) -> Option<Vec<String>> {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(life.ask(Instant::now() + limit))
    }

    #[test]
    fn whoever_asks_the_database_is_asked_on_the_runtime_of_the_start() {
        let (_start, told, life) = started();
        life.schema.locked().at = None;
        let found_before = probe(&life, 2 * SECOND);
        assert_eq!(found_before, Some(Vec::new()), "the look at the tables takes longer");
        told.permits.add_permits(1);
        let asked = probe(&life, 60 * SECOND);
        assert_eq!(asked, Some(vec!["a column is missing".into()]), "it went on meanwhile");
        // Two signs of life, and one look.
        assert_eq!(*told.on.locked(), ["start"; 3]);
    }

    #[test]
    fn a_panic_and_a_runtime_that_is_blocked_or_has_ended_are_answers() {
        let (start, told, life) = started();
        told.permits.close();
        let why = probe(&life, 60 * SECOND).unwrap().concat();
        assert!(why.contains("panicked"), "{why}");
        let (blocked, unblock) = std::sync::mpsc::channel::<()>();
        let (blocks, is_blocked) = std::sync::mpsc::channel();
        start.spawn(async move {
            blocks.send(()).unwrap();
            let _ = unblock.recv();
        });
        is_blocked.recv().unwrap();
        let why = probe(&life, SECOND / 10).unwrap().concat();
        assert!(why.contains("the database was not asked"), "{why}");
        drop(blocked);
        drop(start);
        let why = probe(&life, 60 * SECOND).unwrap().concat();
        assert!(why.contains("the app's runtime has ended"), "{why}");
    }
}
