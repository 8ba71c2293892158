//! How far the database's clock is from this machine's.

#[cfg(feature = "postgres")]
use std::time::{Duration, Instant, SystemTime};

use super::report::Found;
use super::{Desk, Limits};
use crate::error::Result;
use crate::ops::Operator;

// It compares the two clocks.
#[allow(clippy::disallowed_methods)]
pub(super) async fn check(
    operator: &Operator,
    limits: &Limits,
    found: &mut Found,
) -> Result<String> {
    match &operator.desk {
        #[cfg(feature = "sqlite")]
        Desk::Sqlite(_) => {
            let _ = (limits, found);
            Ok("SQLite goes by this machine's clock: there is no difference".into())
        }
        #[cfg(feature = "postgres")]
        Desk::Postgres(desk) => {
            // A connection that has yet to be made would count as a slow answer.
            desk.clock().await?;
            let (asked, before) = (Instant::now(), SystemTime::now());
            let server = desk.clock().await?;
            let answered = asked.elapsed();
            Ok(judge(server, before, answered, limits.clock_difference, found))
        }
    }
}

/// The server read its clock at some time between the question and the answer.
#[cfg(feature = "postgres")]
fn judge(
    server: SystemTime,
    before: SystemTime,
    answered: Duration,
    most: Duration,
    found: &mut Found,
) -> String {
    let here = before + answered / 2;
    let (apart, ahead) = match server.duration_since(here) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    // It cannot be known more exactly than to half the time that the answer took.
    let certain = apart.saturating_sub(answered / 2);
    let shown =
        format!("the server's clock is {:.3} s {ahead} this machine's", apart.as_secs_f64());
    if certain > most {
        found.warning(
            &shown,
            "due times and leases go by the server's clock and are right; times that this \
             program makes itself, such as a delivery at a fixed time, and its logs are not",
            "let both machines follow the same time server",
        );
    }
    shown
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use super::*;

    #[test]
    fn a_slow_answer_is_no_difference() {
        let second = Duration::from_secs(1);
        let now = SystemTime::UNIX_EPOCH + 1_000_000 * second;
        let told = |server, answered| {
            let mut found = Found::by("clock");
            judge(server, now, answered, second, &mut found);
            found.severities().len()
        };
        assert_eq!(told(now + 2 * second, 4 * second), 0);
        assert_eq!(told(now + 3 * second, Duration::ZERO), 1);
        assert_eq!(told(now - 3 * second, Duration::ZERO), 1);
    }
}
