//! Whether sessions are the server's own, or shared by a pooler.

use crate::error::Result;
use crate::ops::doctor::report::Found;
use crate::store::postgres::PgDesk;

/// The server's processes that answered two connections, which were open all the time
/// and took turns; the second was in a transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pids {
    pub(crate) first: i32,
    pub(crate) second: i32,
    pub(crate) first_again: i32,
}

impl Pids {
    /// One session has one process, and no two sessions share it.
    pub(crate) fn are_shared(self) -> bool {
        self.first == self.second || self.first != self.first_again
    }
}

pub(super) async fn check(desk: &PgDesk, found: &mut Found) -> Result<String> {
    // A pooler may happen to hand out processes in an order that looks right.
    for _ in 0..3 {
        if desk.pids().await?.are_shared() {
            found.error(
                "the connections go through a pooler in transaction mode",
                "settings of a session, prepared statements and LISTEN do not hold: statements \
                 fail now and then, plans are others, and nobody is woken",
                "connect to the server itself, or to a pool in session mode (PgBouncer: \
                 `pool_mode = session`); the engine needs five connections a process and no pooler",
            );
            return Ok("sessions share processes of the server".into());
        }
    }
    Ok("each session has its own process of the server".into())
}
