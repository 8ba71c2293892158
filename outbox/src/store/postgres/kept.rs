//! Connections that are kept at hand between two statements.
//!
//! A pool hands out the connection that has rested longest, and after each statement asks
//! it for a sign of life, on a task of its own. Here the one that was used last comes
//! first, at once: its server process has all that a claim and an ack need in its caches.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sqlx::Postgres;
use sqlx::pool::PoolConnection;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::{CONNECT_LIMIT, PgStore};
use crate::planted::planted;
use crate::unpoisoned::Locked as _;

/// Then the pool looks at it, and closes it if it has become too old.
const KEPT_FOR: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct IdleConnections(Mutex<State>);

#[derive(Default)]
struct State {
    idle: Vec<One>,
    /// So many wait for one from the pool: as long as anybody does, none is kept.
    waiting: usize,
    closed: bool,
}

/// A connection, and when it came from the pool.
pub(super) struct One {
    pub(super) connection: PoolConnection<Postgres>,
    since: Instant,
}

impl One {
    pub(super) fn fresh(connection: PoolConnection<Postgres>) -> Self {
        Self { connection, since: Instant::now() }
    }

    /// Goes back to the pool, which asks it for a sign of life and would wait for that with
    /// no end: its place would be lost.
    pub(super) fn leave(mut self) {
        if planted("leaked-connection") {
            let connection = self.connection.detach();
            // For so long only, or the campaign itself gets none.
            tokio::spawn(async move {
                sleep(CONNECT_LIMIT).await;
                drop(connection);
            });
            return;
        }
        tokio::spawn(timeout(CONNECT_LIMIT, self.connection.return_to_pool()));
    }
}

/// Somebody who waits.
pub(super) struct Waiting<'a>(&'a IdleConnections);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl IdleConnections {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.locked()
    }

    /// The one that was used last. Who gets none is to ask the pool, and waits meanwhile.
    pub(super) fn take(&self) -> Result<One, Waiting<'_>> {
        let mut state = self.state();
        if let Some(one) = state.idle.pop() {
            return Ok(one);
        }
        state.waiting += 1;
        Err(Waiting(self))
    }

    /// The one that has rested longest.
    pub(super) fn oldest(&self) -> Option<PoolConnection<Postgres>> {
        let mut state = self.state();
        (!state.idle.is_empty()).then(|| state.idle.remove(0).connection)
    }

    /// Keeps one that answered, or lets the pool have it.
    pub(super) fn give_back(&self, one: One) {
        let mut state = self.state();
        if !state.closed && state.waiting == 0 && one.since.elapsed() < KEPT_FOR {
            state.idle.push(one);
        } else {
            drop(state);
            one.leave();
        }
    }

    /// Lets the pool have all of them, which closes those that do not answer.
    pub(super) fn distrust(&self) {
        let idle = std::mem::take(&mut self.state().idle);
        idle.into_iter().for_each(One::leave);
    }

    pub(super) fn close(&self) {
        self.state().closed = true;
        self.distrust();
    }

    pub(super) fn len(&self) -> usize {
        self.state().idle.len()
    }
}

/// A connection on which a statement runs. One that is left without its answer
/// does not go back to the pool, which would wait for the answer with no end and
/// keep the place of the connection taken.
pub(super) struct Used<'a> {
    pub(super) store: &'a PgStore,
    pub(super) one: Option<One>,
}

impl Drop for Used<'_> {
    fn drop(&mut self) {
        if let Some(unanswered) = self.one.take() {
            drop(unanswered.connection.detach());
            // Outside of a runtime nothing goes back to the pool.
            if Handle::try_current().is_ok() {
                self.store.distrust();
            }
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // One that goes back to its pool needs a runtime, which may be gone.
        for one in self.idle.drain(..) {
            drop(one.connection.detach());
        }
    }
}
