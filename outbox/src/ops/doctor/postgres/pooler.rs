//! Whether sessions are the server's own, or shared by a pooler.

use crate::error::Result;
use crate::ops::doctor::report::Found;
use crate::store::postgres::PgDesk;

pub(super) async fn check(desk: &PgDesk, found: &mut Found) -> Result<String> {
    // A pooler may happen to hand out processes in an order that looks right.
    for _ in 0..3 {
        if desk.shares_sessions().await? {
            found.error(
                "the connections go through a pooler in transaction mode",
                "session settings, prepared statements and LISTEN do not last: statements fail \
                 now and then, plans differ, and nobody is woken",
                "connect to the server itself, or to a pool in session mode (PgBouncer: \
                 `pool_mode = session`); the engine needs five connections a process and no pooler",
            );
            return Ok("sessions share processes of the server".into());
        }
    }
    Ok("each session has its own process of the server".into())
}
