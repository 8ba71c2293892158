//! Connections that are kept at hand between two statements.
//!
//! A pool hands out the connection that has rested longest. After each statement it asks the
//! connection for a sign of life, on a task of its own. Here the connection that was used last
//! comes first, and at once: its server process has all that a claim and an ack need in its caches.

use std::sync::Mutex;
use std::time::Duration;

use sqlx::Postgres;
use sqlx::pool::PoolConnection;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::{CONNECT_LIMIT, PgStore};
use crate::unpoisoned::Locked as _;

/// For how long a connection is kept. Then the pool looks at it, and closes it if it is too old.
const KEPT_FOR: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct IdleConnections(Mutex<State>);

#[derive(Default)]
struct State {
    idle: Vec<One>,
    /// How many wait for a connection from the pool. As long as anybody does, none is kept.
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

    /// Lets the pool have it back, for a limited time: the pool asks it for a sign of life and
    /// would wait for that without end, and its place would be lost.
    pub(super) fn leave(mut self) {
        tokio::spawn(timeout(CONNECT_LIMIT, self.connection.return_to_pool()));
    }
}

/// A caller that waits for a connection from the pool, until dropped.
pub(super) struct Waiting<'a>(&'a IdleConnections);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.0.locked().waiting -= 1;
    }
}

impl IdleConnections {
    /// The connection that was used last. A caller that gets none asks the pool, and counts as
    /// waiting meanwhile.
    pub(super) fn take(&self) -> Result<One, Waiting<'_>> {
        let mut state = self.0.locked();
        if let Some(one) = state.idle.pop() {
            return Ok(one);
        }
        state.waiting += 1;
        Err(Waiting(self))
    }

    /// The connection that has rested longest.
    pub(super) fn oldest(&self) -> Option<PoolConnection<Postgres>> {
        let mut state = self.0.locked();
        (!state.idle.is_empty()).then(|| state.idle.remove(0).connection)
    }

    /// Keeps a connection that answered, or lets the pool have it.
    pub(super) fn give_back(&self, one: One) {
        let mut state = self.0.locked();
        if !state.closed && state.waiting == 0 && one.since.elapsed() < KEPT_FOR {
            state.idle.push(one);
        } else {
            drop(state);
            one.leave();
        }
    }

    /// Lets the pool have all of them. It closes those that do not answer.
    pub(super) fn distrust(&self) {
        let idle = std::mem::take(&mut self.0.locked().idle);
        idle.into_iter().for_each(One::leave);
    }

    pub(super) fn close(&self) {
        self.0.locked().closed = true;
        self.distrust();
    }

    pub(super) fn len(&self) -> usize {
        self.0.locked().idle.len()
    }
}

/// A connection on which a statement runs. If it is left without its answer, it does not go back to
/// the pool: the pool would wait for the answer without end, and keep the connection's place taken.
pub(super) struct Used<'a> {
    pub(super) store: &'a PgStore,
    pub(super) one: Option<One>,
}

impl Drop for Used<'_> {
    fn drop(&mut self) {
        if let Some(unanswered) = self.one.take() {
            drop(unanswered.connection.detach());
            // Outside of a runtime nothing can go back to the pool.
            if Handle::try_current().is_ok() {
                self.store.distrust();
            }
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // A connection needs a runtime to go back to its pool, and that may be gone.
        for one in self.idle.drain(..) {
            drop(one.connection.detach());
        }
    }
}
