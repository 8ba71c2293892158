//! Which backends a test run has, and what a test does without one.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// URL of a server on which the tests may make and drop schemas.
pub const PG_URL: &str = "OUTBOX_TEST_PG_URL";
/// Comma list of backends whose tests must not be skipped.
pub const REQUIRE: &str = "OUTBOX_REQUIRE";

/// True when the backend is there. Otherwise the caller returns: a line says
/// that tests were skipped.
///
/// # Panics
/// When the backend is missing and `OUTBOX_REQUIRE` names it, so that a run that
/// was meant to be complete cannot pass by skipping.
#[must_use]
pub fn require(backend: &str) -> bool {
    match backend {
        "postgres" if pg_url().is_none() => {
            skip(backend, &format!("no PostgreSQL: {PG_URL} is not set"));
            false
        }
        _ => true,
    }
}

/// Says that a test does not run, or fails if the backend is required.
///
/// # Panics
/// When `OUTBOX_REQUIRE` names the backend.
pub fn skip(backend: &str, why: &str) {
    let required = std::env::var(REQUIRE).unwrap_or_default();
    let required = required.split(',').any(|name| name.trim() == backend);
    assert!(!required, "{backend} is required by {REQUIRE}, but {why}");
    // What a test that passes has printed nobody sees.
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().unwrap().insert(why.to_owned()) {
        let _ = writeln!(std::io::stderr(), "skipped: {why}");
    }
}

/// The server of the tests, if there is one.
#[must_use]
pub fn pg_url() -> Option<String> {
    std::env::var(PG_URL).ok().filter(|url| !url.is_empty())
}

/// A name that no other test of any process uses.
#[must_use]
pub fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let random = uuid::Uuid::new_v4().simple().to_string();
    format!("{prefix}_{}_{number}_{}", std::process::id(), &random[..8])
}

/// A query for every `lock` that those may hold who sleep on a queue of this channel.
#[must_use]
pub fn sleepers(channel: &str) -> String {
    let channel = channel.replace('\'', "''");
    format!(
        "SELECT ('x' || left(encode(sha256(convert_to('{channel}', 'UTF8')), 'hex'), 16))::bit(64)::bigint
            & -64 | slot AS lock
        FROM generate_series(0, 63) AS slot"
    )
}
