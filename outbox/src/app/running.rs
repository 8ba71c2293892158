//! An app that runs.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
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
    rest: Mutex<Rest>,
    /// Ends the claims and the pings under way: the connection of a ping without an answer
    /// would hold up the stop.
    claims: CancellationToken,
    /// A ping reads it at once, without waiting for the drain.
    life: Arc<Life>,
    sinks: Sinks,
}

/// What a stop still has to do and to return. A dropped call leaves it to the next one.
struct Rest {
    /// `None` once drained.
    engine: Option<Box<dyn AnyEngine>>,
    /// The shutdown hooks that have not begun.
    hooks: std::vec::IntoIter<Hook>,
    /// The hook that has begun.
    hook: Option<Answer<'static>>,
    /// The first error.
    error: Option<Error>,
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// An engine, whatever its store.
pub(super) trait AnyEngine: Send + Sync {
    fn drain(&mut self) -> Answer<'_>;
}

impl<S: Store> AnyEngine for Engine<S> {
    fn drain(&mut self) -> Answer<'_> {
        Box::pin(self.drain())
    }
}

impl RunningApp {
    pub(super) fn new(
        engine: Box<dyn AnyEngine>,
        claims: CancellationToken,
        life: Arc<Life>,
        shutdown: Vec<Hook>,
        sinks: Sinks,
    ) -> Self {
        let hooks = shutdown.into_iter();
        let rest = Rest { engine: Some(engine), hooks, hook: None, error: None };
        Self { rest: Mutex::new(rest), claims, life, sinks }
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
        let Rest { engine, hooks, hook, error } = &mut *rest;
        if let Some(running) = engine {
            let drained = running.drain().await;
            // Before the engine is gone: if this call is dropped here, the next one repeats it.
            self.sinks.flush(RECORDERS_LIMIT).await;
            *error = drained.err();
            *engine = None;
            self.life.enter(Phase::Stopped);
        }
        let mut hooked = false;
        loop {
            if hook.is_none() {
                *hook = hooks.next().map(|hook| begin(hook, "shutdown"));
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
            // The hooks may have published.
            self.sinks.flush(RECORDERS_LIMIT).await;
        }
        self.sinks.leave_process();
        error.take().map_or(Ok(()), Err)
    }
}

/// A hook that panics counts as failed, so that the other shutdown hooks run, and a start says why
/// it failed.
pub(super) fn begin(hook: Hook, which: &'static str) -> Answer<'static> {
    let run = AssertUnwindSafe(async move { hook().await }).catch_unwind();
    Box::pin(async move {
        let ended = run.await.unwrap_or_else(|_| Err("it panicked".into()));
        ended.map_err(|source| Error::Hook { hook: which, source })
    })
}

impl Drop for RunningApp {
    /// Without a stop nothing else lets its recorders go.
    fn drop(&mut self) {
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
    use tokio::time::sleep;

    use super::*;
    use crate::engine::{Reading, Vital};
    use crate::health::Loop;
    use crate::store::Connections;

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
    struct Idle;

    impl AnyEngine for Idle {
        fn drain(&mut self) -> Answer<'_> {
            Box::pin(async { Ok(()) })
        }
    }

    fn running(slow: &Arc<dyn Vital>) -> RunningApp {
        let life = Life::begin(Arc::downgrade(slow));
        let claims = CancellationToken::new();
        RunningApp::new(Box::new(Idle), claims, life, Vec::new(), Sinks::default())
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
}
