//! How full the server's queue of notifications is.

use crate::error::Result;
use crate::ops::doctor::Limits;
use crate::ops::doctor::report::{Found, Severity};
use crate::store::postgres::PgDesk;

pub(super) async fn check(desk: &PgDesk, limits: &Limits, found: &mut Found) -> Result<String> {
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
