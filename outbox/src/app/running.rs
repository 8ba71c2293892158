//! An app that runs.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Mutex;
use tokio::time::timeout;
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

/// The loops of a started app. Dropping it stops without waiting.
pub struct RunningApp {
    rest: Mutex<Rest>,
    /// Ends the claims, even while a ping has the engine.
    claims: CancellationToken,
    /// Told by a ping at once, without waiting for the drain.
    life: Arc<Life>,
    sinks: Sinks,
}

/// What a stop has still to do, and to tell: a call that is dropped leaves it to the next.
struct Rest {
    /// `None` once drained.
    engine: Option<Box<dyn AnyEngine>>,
    /// Those that have not begun.
    hooks: std::vec::IntoIter<Hook>,
    /// The one that has begun.
    hook: Option<Answer<'static>>,
    /// The first.
    error: Option<Error>,
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// An engine, whatever its store.
pub(super) trait AnyEngine: Send + Sync {
    fn claims(&self) -> CancellationToken;
    fn ping(&self) -> Answer<'_>;
    fn drain(&mut self) -> Answer<'_>;
}

impl<S: Store> AnyEngine for Engine<S> {
    fn claims(&self) -> CancellationToken {
        self.claims()
    }

    fn ping(&self) -> Answer<'_> {
        Box::pin(self.ping())
    }

    fn drain(&mut self) -> Answer<'_> {
        Box::pin(self.drain())
    }
}

impl RunningApp {
    pub(super) fn new(
        engine: Box<dyn AnyEngine>,
        life: Arc<Life>,
        shutdown: Vec<Hook>,
        sinks: Sinks,
    ) -> Self {
        let (claims, hooks) = (engine.claims(), shutdown.into_iter());
        let rest = Rest { engine: Some(engine), hooks, hook: None, error: None };
        Self { rest: Mutex::new(rest), claims, life, sinks }
    }

    /// Whether it is alive and ready, for probes.
    #[must_use]
    pub fn health(&self) -> Health {
        Health::of(&self.life)
    }

    /// The next check of its health looks at the tables.
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

    /// Asks the database for a sign of life and every loop whether it lives;
    /// answers within 5 s.
    ///
    /// # Errors
    /// When the database does not answer, a loop has ended, or the app is
    /// stopped or stopping.
    pub async fn ping(&self) -> Result<()> {
        let stopped = || StoreError::new("ping", "the app is stopped or stopping", false);
        if self.life.phase() != Phase::Running {
            return Err(stopped().into());
        }
        let ask = async {
            match &self.rest.lock().await.engine {
                Some(engine) => engine.ping().await,
                None => Err(stopped().into()),
            }
        };
        timeout(PING_LIMIT, ask)
            .await
            .unwrap_or_else(|_| Err(StoreError::new("ping", "no answer within 5 s", true).into()))
    }

    /// Drains: claims no more, lets running handlers finish within the drain
    /// timeout, writes their results, gives unstarted rows back. Then the shutdown
    /// hooks run, each of them. A call after its end does nothing.
    ///
    /// # Errors
    /// The first: when handlers had to be dropped, or a shutdown hook failed.
    ///
    /// # Cancel safety
    /// A dropped call leaves the drain, or the hook that runs, where it is; call it again
    /// to go on.
    pub async fn stop(&self) -> Result<()> {
        if self.life.phase() == Phase::Running {
            self.life.enter(Phase::Stopping);
        }
        self.claims.cancel();
        let mut rest = self.rest.lock().await;
        let Rest { engine, hooks, hook, error } = &mut *rest;
        if let Some(running) = engine {
            let drained = running.drain().await;
            // Before the engine is gone: a call that is dropped here goes on when repeated.
            self.sinks.flush(RECORDERS_LIMIT).await;
            *error = drained.err();
            *engine = None;
            self.life.enter(Phase::Stopped);
        }
        let mut hooked = false;
        loop {
            if hook.is_none() {
                *hook = hooks.next().map(begin);
            }
            let Some(running) = hook else { break };
            let ended = running.await;
            *hook = None;
            match ended {
                Err(failed) if error.is_none() => *error = Some(failed),
                Err(_) => tracing::error!(
                    target: TARGET, "a shutdown hook failed as well; the first error is returned"
                ),
                Ok(()) => {}
            }
            hooked = true;
        }
        if hooked {
            // They may have published.
            self.sinks.flush(RECORDERS_LIMIT).await;
        }
        error.take().map_or(Ok(()), Err)
    }
}

/// One that panics fails, so that the others run.
fn begin(hook: Hook) -> Answer<'static> {
    let run = AssertUnwindSafe(async move { hook().await }).catch_unwind();
    Box::pin(async move {
        let ended = run.await.unwrap_or_else(|_| Err("it panicked".into()));
        ended.map_err(|source| Error::Hook { hook: "shutdown", source })
    })
}

impl fmt::Debug for RunningApp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningApp").finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::engine::{Settings, Shared};
    use crate::store::memory::MemoryStore;

    /// The database answers no ping.
    struct Hangs(CancellationToken);

    impl AnyEngine for Hangs {
        fn claims(&self) -> CancellationToken {
            self.0.clone()
        }

        fn ping(&self) -> Answer<'_> {
            Box::pin(std::future::pending())
        }

        fn drain(&mut self) -> Answer<'_> {
            Box::pin(async { Ok(()) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_ping_without_an_answer_keeps_no_stop_from_ending_the_claims() {
        let (store, render) = (MemoryStore::new(true), Arc::new(crate::subscriber::debug_chain));
        let shared = Shared::new(store, render, crate::Publisher::default(), Sinks::default());
        let settings = Settings { drain_timeout: PING_LIMIT, sample_every: None };
        let anew = None::<fn() -> MemoryStore>;
        let (states, counts) = (crate::extract::States::default(), crate::Stats::default());
        let engine = Engine::start(shared, Vec::new(), &states, &counts, settings, anew);
        let (claims, life) = (CancellationToken::new(), Life::begin(engine.vitals()));
        let hangs = Box::new(Hangs(claims.clone()));
        let running = RunningApp::new(hangs, life, Vec::new(), Sinks::default());
        let begun = tokio::time::Instant::now();
        let ended = async {
            tokio::task::yield_now().await;
            running.stop().await
        };
        let claims_end = async {
            let ended = timeout(PING_LIMIT / 2, claims.cancelled()).await;
            (ended.is_ok(), begun.elapsed())
        };
        let (pinged, stopped, claimed) = tokio::join!(running.ping(), ended, claims_end);
        assert!(pinged.is_err() && stopped.is_ok());
        assert_eq!(claimed, (true, Duration::ZERO));
    }
}
