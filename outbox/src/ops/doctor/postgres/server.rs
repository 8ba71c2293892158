//! The server itself: whether its sessions last, notifications arrive, nobody keeps a table locked,
//! and no stranger may create functions where statements look for them.

use std::time::Instant;

use crate::error::Result;
use crate::ops::doctor::Limits;
use crate::ops::doctor::names::count;
use crate::ops::doctor::report::{Found, Severity};
use crate::ops::locked;
use crate::store::postgres::PgDesk;

/// Whether sessions are the server's own, or shared by a pooler.
pub(super) async fn pooler(desk: &PgDesk, found: &mut Found) -> Result<String> {
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

/// Whether a notification arrives.
pub(super) async fn listen(desk: &PgDesk, limits: &Limits, found: &mut Found) -> Result<String> {
    let began = Instant::now();
    if desk.hears(limits.notification).await? {
        return Ok(format!("a notification came after {} ms", began.elapsed().as_millis()));
    }
    let within = humantime::format_duration(limits.notification);
    found.error(
        format!("a notification did not arrive within {within}"),
        "consumers are not woken: a message waits for the next poll, up to `max_poll` (20 s)",
        "connect to the server itself, or to a pool in session mode; a standby delivers none",
    );
    Ok("no notification came".into())
}

/// How full the server's queue of notifications is.
pub(super) async fn notify(desk: &PgDesk, limits: &Limits, found: &mut Found) -> Result<String> {
    Ok(judge(desk.notify_usage().await?, limits.notify_usage, found))
}

fn judge(usage: f64, most: f64, found: &mut Found) -> String {
    let shown = format!("the queue of notifications is {:.2} % full", usage * 100.0);
    if usage > most {
        let severity = if usage > 0.5 { Severity::Error } else { Severity::Warning };
        found.add(
            severity,
            &shown,
            "when it is full, commits that notify fail: publishes to queues whose consumers sleep, \
             until the apps notice, and all publishes with `OUTBOX_NOTIFY=always`",
            "a session that listens is in a transaction that does not end: the check `snapshots` \
             names old ones, the server's log names its pid; end it by `SELECT pg_terminate_backend(pid)`",
        );
    }
    shown
}

/// Whether somebody keeps a table locked.
pub(super) async fn locks(desk: &PgDesk, found: &mut Found) -> Result<String> {
    let tables = desk.locked_tables().await?;
    for (table, by) in &tables {
        let told = locked(table, by);
        found.warning(told.what, told.means, told.next);
    }
    Ok(match tables.len() as u64 {
        0 => "nobody keeps a table locked".into(),
        locked => format!("{} locked", count(locked, "table")),
    })
}

/// Whether strangers may create functions where statements look for them.
pub(super) async fn path(desk: &PgDesk, found: &mut Found) -> Result<String> {
    let open = desk.open_schemas().await?;
    for schema in &open {
        found.warning(
            format!("every role may create functions and operators in the schema {schema}"),
            "PostgreSQL prefers one whose arguments fit better than those of its own: the next \
             statement of this role, or the owner's `migrate`, runs it with the rights of that role",
            format!("REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC"),
        );
    }
    Ok(match open.len() as u64 {
        0 => "nobody else may create functions where statements look for them".into(),
        open => format!("{} open to everybody", count(open, "schema")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_full_is_an_error() {
        let told = |usage| {
            let mut found = Found::by("notify");
            judge(usage, 0.1, &mut found);
            found.severities()
        };
        assert_eq!(told(0.05), []);
        assert_eq!(told(0.2), [Severity::Warning]);
        assert_eq!(told(0.6), [Severity::Error]);
    }
}
