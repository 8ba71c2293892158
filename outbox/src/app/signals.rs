//! SIGINT and SIGTERM: the first drains, the second ends the process.

#[cfg(unix)]
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(unix)]
use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::unpoisoned::Locked as _;

#[cfg(unix)]
pub(super) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    ends: Arc<Ends>,
}

/// Ends the process where the signal arrives: a runtime whose threads are all blocked, or
/// that waits for them at its own end, would not hear of it.
#[cfg(unix)]
struct Ends {
    /// Whether the next one does. The first one sees to that itself, where it arrives.
    next: Arc<AtomicBool>,
    /// Runs that wait for one.
    waiting: Mutex<usize>,
}

#[cfg(unix)]
impl Signals {
    /// Before the app starts, so that no signal meets the default action
    /// half-way.
    pub(super) fn install() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(Error::Signals)?,
            terminate: signal(SignalKind::terminate()).map_err(Error::Signals)?,
            ends: Ends::begin().map_err(Error::Signals)?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// With the exit status that a shell reports for the signal. Leases of what still runs
    /// then end by themselves.
    pub(super) fn exit_on_second(self) {
        self.ends.next.store(true, Ordering::SeqCst);
    }
}

/// Nobody hears of one any more, if this was the last run: it could not start, or was dropped.
#[cfg(unix)]
impl Drop for Signals {
    fn drop(&mut self) {
        let mut waiting = self.ends.waiting.locked();
        *waiting -= 1;
        if *waiting == 0 {
            self.ends.next.store(true, Ordering::SeqCst);
        }
    }
}

#[cfg(unix)]
impl Ends {
    /// Of the process. A run beside none begins anew.
    fn begin() -> std::io::Result<Arc<Self>> {
        static ENDS: Mutex<Option<Arc<Ends>>> = Mutex::new(None);
        let mut known = ENDS.locked();
        let ends = match &*known {
            Some(ends) => Arc::clone(ends),
            None => Arc::clone(known.insert(Self::install()?)),
        };
        let mut waiting = ends.waiting.locked();
        if *waiting == 0 {
            ends.next.store(false, Ordering::SeqCst);
        }
        *waiting += 1;
        drop(waiting);
        Ok(ends)
    }

    fn install() -> std::io::Result<Arc<Self>> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        use signal_hook::flag::{register, register_conditional_shutdown};
        let next = Arc::<AtomicBool>::default();
        for (signal, status) in [(SIGINT, 130), (SIGTERM, 143)] {
            // In this order: one that sets it does not itself end the process.
            register_conditional_shutdown(signal, status, Arc::clone(&next))?;
            register(signal, Arc::clone(&next))?;
        }
        Ok(Arc::new(Self { next, waiting: Mutex::new(0) }))
    }
}

#[cfg(not(unix))]
pub(super) struct Signals;

#[cfg(not(unix))]
impl Signals {
    pub(super) fn install() -> Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        // Without a handler for Ctrl-C the process is simply ended by it.
        let _ = tokio::signal::ctrl_c().await.map_err(Error::Signals);
    }

    pub(super) fn exit_on_second(mut self) {
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(130)
        });
    }
}

impl Signals {
    /// Cancel safe: a signal is never missed.
    pub(super) async fn first(&mut self) {
        self.next().await;
        tracing::info!(target: crate::telemetry::TARGET, "draining; a second signal ends at once");
    }
}
