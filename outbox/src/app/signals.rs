//! SIGINT and SIGTERM: the first drains, the second ends the process.

#[cfg(unix)]
use std::sync::atomic::{AtomicBool, Ordering};
#[cfg(unix)]
use std::sync::{Arc, Mutex};

#[cfg(unix)]
use crate::error::Error;
use crate::error::Result;
#[cfg(unix)]
use crate::unpoisoned::Locked as _;

#[cfg(unix)]
pub(super) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    ends: Arc<Ends>,
}

/// Ends the process in the signal handler. A runtime would not notice the signal while all its
/// threads are blocked, or while it waits for them at its own end.
#[cfg(unix)]
struct Ends {
    /// Whether the next signal ends the process. The handler of the first one sets it.
    next: Arc<AtomicBool>,
    /// How many runs wait for a signal.
    waiting: Mutex<usize>,
}

#[cfg(unix)]
impl Signals {
    /// Called before the app starts, so that no signal during the start meets the default
    /// action.
    pub(super) fn install() -> Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(Error::Signals)?,
            terminate: signal(SignalKind::terminate()).map_err(Error::Signals)?,
            ends: Ends::begin().map_err(Error::Signals)?,
        })
    }

    /// Cancel safe: a signal is never missed.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Lets the next signal end the process, with the exit status that a shell reports for it.
    /// The leases of rows whose handlers still run then end by themselves.
    pub(super) fn exit_on_second(self) {
        self.ends.next.store(true, Ordering::SeqCst);
    }
}

/// After the last run, which could not start or was dropped, nobody waits for a signal.
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
    /// The one of this process. If no other run waits, counting signals begins anew.
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
            // In this order, so that the signal that sets the flag does not end the process.
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

    pub(super) async fn next(&mut self) {
        // If no handler can be installed, Ctrl-C simply ends the process.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    }

    pub(super) fn exit_on_second(mut self) {
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(130)
        });
    }
}
