//! An app that runs.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Hook;
use crate::engine::Engine;
use crate::error::{Error, Result, StoreError};
use crate::health::{Health, Life, Phase};
use crate::store::Store;
use crate::telemetry::{Sinks, TARGET};

/// How long `ping` may take.
const PING_LIMIT: Duration = Duration::from_secs(5);
/// How long a stop waits for recorders.
const RECORDERS_LIMIT: Duration = Duration::from_secs(1);

/// The loops of a started app. Dropping it stops them without waiting.
#[must_use = "dropping it stops the app at once"]
pub struct RunningApp {
    /// What a stop has still to do. It owns the engine. A call of `stop` that is dropped leaves it
    /// here, and the next one goes on with it: so all limits count from the first call. `None` once
    /// it has ended.
    rest: Mutex<Option<Answer>>,
    /// Ends the claims and the pings under way: the connection of a ping without an answer
    /// would hold up the stop.
    claims: CancellationToken,
    /// A ping reads it at once, without waiting for the drain.
    life: Arc<Life>,
    sinks: Sinks,
}

type Answer = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

impl RunningApp {
    pub(super) fn new<S: Store>(
        engine: Engine<S>,
        life: Arc<Life>,
        shutdown: Vec<Hook>,
        sinks: Sinks,
    ) -> Self {
        let claims = engine.claims();
        let rest: Answer = Box::pin(stop(engine, Arc::clone(&life), shutdown, sinks.clone()));
        Self { rest: Mutex::new(Some(rest)), claims, life, sinks }
    }

    /// Whether the app is alive and ready, for probes.
    #[must_use]
    pub fn health(&self) -> Health {
        Health::of(&self.life)
    }

    /// Makes the next check of its health look at the tables.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn forget_schema(&self) {
        self.life.forget_schema();
    }

    /// Ends a loop as a panic in it would.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    pub fn end_loop(&self, name: &str) {
        self.life.end_loop(name);
    }

    /// Asks the database for a sign of life, and every loop whether it lives.
    /// Answers within 5 s.
    ///
    /// # Errors
    /// When the database does not answer, a loop has ended, or the app is
    /// stopped or stopping.
    ///
    /// # Cancel safety
    /// The call only reads. A dropped call gives that up.
    pub async fn ping(&self) -> Result<()> {
        let stopped = || StoreError::new("ping", "the app is stopped or stopping", false);
        let Some(vital) = self.life.vital() else { return Err(stopped().into()) };
        let ended = vital.ended();
        // Read after the loops: a stop ends them one after the other.
        if self.life.phase() != Phase::Running {
            return Err(stopped().into());
        }
        if let Some(ended) = ended {
            return Err(StoreError::new("ping", ended, false).into());
        }
        let sign = self.life.sign_of_life(&vital, Instant::now() + PING_LIMIT);
        match self.claims.run_until_cancelled(sign).await {
            Some(Some(answer)) => Ok(answer?),
            Some(None) => Err(StoreError::new("ping", "no answer within 5 s", true).into()),
            None => Err(stopped().into()),
        }
    }

    /// Drains the app: claims no more, lets running handlers finish within the drain
    /// timeout, writes their results, and gives unstarted rows back. Then every shutdown
    /// hook runs. A call after that does nothing.
    ///
    /// Do not wait for it in a handler of this app, because it waits for that handler: let
    /// the handler tell somebody else to stop the app.
    ///
    /// # Errors
    /// The first error: when handlers had to be dropped, or a shutdown hook failed.
    ///
    /// # Cancel safety
    /// A dropped call leaves the drain, or the hook that runs, where it is. The next call
    /// goes on there, with what is then left of the drain's time.
    pub async fn stop(&self) -> Result<()> {
        if self.life.phase() == Phase::Running {
            self.life.enter(Phase::Stopping);
        }
        self.claims.cancel();
        let mut rest = self.rest.lock().await;
        let Some(goes_on) = &mut *rest else { return Ok(()) };
        // What has panicked must not be polled again either.
        let ended = AssertUnwindSafe(goes_on).catch_unwind().await;
        *rest = None;
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// What a stop does after it has ended the claims. Returns the first error.
async fn stop<S: Store>(
    mut engine: Engine<S>,
    life: Arc<Life>,
    shutdown: Vec<Hook>,
    sinks: Sinks,
) -> Result<()> {
    let mut stopped = engine.drain().await;
    sinks.flush(RECORDERS_LIMIT).await;
    // Not before: a health check takes an app without an engine for one that has stopped.
    drop(engine);
    life.enter(Phase::Stopped);
    let may_publish = !shutdown.is_empty();
    for hook in shutdown {
        match begin(hook, "shutdown").await {
            Err(failed) if stopped.is_ok() => stopped = Err(failed),
            Err(_) => crate::telemetry::error!(
                target: TARGET, "a shutdown hook failed as well; the first error is returned"
            ),
            Ok(()) => {}
        }
    }
    if may_publish {
        sinks.flush(RECORDERS_LIMIT).await;
    }
    sinks.leave_process();
    stopped
}

/// A hook that panics counts as failed, so that the other shutdown hooks run, and a start says why
/// it failed.
pub(super) fn begin(hook: Hook, which: &'static str) -> Answer {
    let run = AssertUnwindSafe(async move { hook().await }).catch_unwind();
    Box::pin(async move {
        let ended = run.await.unwrap_or_else(|_| Err("it panicked".into()));
        ended.map_err(|source| Error::Hook { hook: which, source })
    })
}

impl Drop for RunningApp {
    /// Without a stop nothing else lets its recorders go, and a check under way still knows its loops.
    fn drop(&mut self) {
        self.life.enter(Phase::Stopped);
        self.sinks.leave_process();
    }
}

impl fmt::Debug for RunningApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningApp").finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use futures_util::future::BoxFuture;
    use tokio::task::yield_now;
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::engine::tests::unanswered::holding;
    use crate::engine::{Reading, Settings, Shared, Vital};
    use crate::extract::States;
    use crate::health::Loop;
    use crate::store::Connections;
    use crate::store::memory::MemoryStore;
    use crate::subscriber::{Subscriber, debug_chain};
    use crate::telemetry::{Event, Stats};

    const SECOND: Duration = Duration::from_secs(1);

    /// Answers a ping after so long.
    struct Slow(Duration);

    impl Vital for Slow {
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
                sleep(self.0).await;
                Ok(())
            })
        }

        fn schema(&self) -> BoxFuture<'_, Result<Vec<String>, StoreError>> {
            Box::pin(async { Ok(Vec::new()) })
        }
    }

    /// Has nothing to drain.
    fn running(slow: &Arc<dyn Vital>) -> RunningApp {
        stopping(slow, async { Ok(()) })
    }

    fn stopping(
        slow: &Arc<dyn Vital>,
        rest: impl Future<Output = Result<()>> + Send + 'static,
    ) -> RunningApp {
        let life = Life::begin(Arc::downgrade(slow));
        let rest: Answer = Box::pin(rest);
        let (claims, sinks) = (CancellationToken::new(), Sinks::default());
        RunningApp { rest: Mutex::new(Some(rest)), claims, life, sinks }
    }

    #[tokio::test(start_paused = true)]
    async fn a_ping_without_an_answer_keeps_no_stop_waiting() {
        let slow: Arc<dyn Vital> = Arc::new(Slow(3600 * SECOND));
        let (running, begun) = (running(&slow), Instant::now());
        let stop = async {
            yield_now().await;
            running.stop().await
        };
        let (pinged, stopped) = tokio::join!(running.ping(), stop);
        stopped.unwrap();
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(pinged.unwrap_err().to_string().contains("stopped or stopping"));
    }

    #[tokio::test(start_paused = true)]
    async fn pings_at_once_do_not_wait_for_each_other() {
        let slow: Arc<dyn Vital> = Arc::new(Slow(2 * SECOND));
        let (running, begun) = (running(&slow), Instant::now());
        let (one, two, three) = tokio::join!(running.ping(), running.ping(), running.ping());
        assert!(one.is_ok() && two.is_ok() && three.is_ok());
        assert_eq!(begun.elapsed(), 2 * SECOND);
    }

    /// An app whose only handler, which runs, never ends.
    async fn endless(drain_timeout: Duration, sinks: Sinks) -> RunningApp {
        let (render, publisher) = (Arc::new(debug_chain), crate::Publisher::default());
        let shared = Shared::new(holding(1).await, render, publisher, sinks.clone());
        let never = Subscriber::new("s", "q", |_: crate::Context| std::future::pending::<()>());
        let settings = Settings { drain_timeout, sample_every: None };
        let (states, counts) = (States::default(), Stats::default());
        let none = None::<fn() -> MemoryStore>;
        let engine = Engine::start(shared, vec![never], &states, &counts, settings, none);
        sleep(SECOND).await;
        let life = Life::begin(engine.vitals());
        RunningApp::new(engine, life, Vec::new(), sinks)
    }

    /// As a caller does who does something else meanwhile.
    #[tokio::test(start_paused = true)]
    async fn a_stop_that_is_dropped_again_and_again_takes_no_longer() {
        let running = endless(15 * SECOND, Sinks::default()).await;
        let begun = Instant::now();
        let stopped = loop {
            if let Ok(stopped) = timeout(2 * SECOND, running.stop()).await {
                break stopped;
            }
            assert!(begun.elapsed() < 3600 * SECOND, "it goes on for ever");
        };
        assert!(matches!(stopped, Err(Error::DrainTimeout(1))), "{stopped:?}");
        assert!(begun.elapsed() < 16 * SECOND, "{:?}", begun.elapsed());
        running.stop().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_app_is_stopping_until_its_events_are_recorded() {
        let (lets_go, waits) = std::sync::mpsc::channel::<()>();
        let (waits, mut sinks) = (std::sync::Mutex::new(waits), Sinks::default());
        let waits = move |_: &Event| {
            let _ = waits.lock().unwrap().recv();
        };
        sinks.add(waits, &Stats::default());
        let running = endless(SECOND, sinks).await;
        let phase = async || running.health().check().await.phase;
        assert!(timeout(SECOND * 3 / 2, running.stop()).await.is_err(), "nothing is recorded");
        assert_eq!(phase().await, Phase::Stopping);
        drop(lets_go);
        assert!(matches!(running.stop().await, Err(Error::DrainTimeout(1))));
        assert_eq!(phase().await, Phase::Stopped);
    }

    /// It would panic for another reason, and hide the first one.
    #[tokio::test]
    async fn a_stop_that_has_panicked_does_not_go_on() {
        let slow: Arc<dyn Vital> = Arc::new(Slow(SECOND));
        let running = stopping(&slow, async { panic!("as told") });
        let stopped = AssertUnwindSafe(running.stop()).catch_unwind().await;
        assert_eq!(stopped.unwrap_err().downcast_ref(), Some(&"as told"));
        running.stop().await.unwrap();
    }
}
