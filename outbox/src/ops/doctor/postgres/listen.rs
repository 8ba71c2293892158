//! Whether a notification arrives.

use std::time::Instant;

use crate::error::Result;
use crate::ops::doctor::Limits;
use crate::ops::doctor::report::Found;
use crate::store::postgres::PgDesk;

pub(super) async fn check(desk: &PgDesk, limits: &Limits, found: &mut Found) -> Result<String> {
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
