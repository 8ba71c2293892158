//! How long a writer of this program waits for another one. The file has no such setting.

use std::time::Duration;

use crate::error::Result;
use crate::ops::doctor::report::Found;
use crate::store::sqlite::SqliteDesk;

const ENOUGH: Duration = Duration::from_secs(1);

pub(super) async fn check(desk: &SqliteDesk, found: &mut Found) -> Result<String> {
    let timeout = desk.busy_timeout().await?;
    let shown =
        format!("a writer of this program waits {} ms for another one", timeout.as_millis());
    if timeout < ENOUGH {
        found.warning(
            &shown,
            "publishing and settling fail with \"database is locked\" as soon as two write at once",
            "set `SqliteConnectOptions::busy_timeout` to 5 s, as `outbox::sqlite::connect` does",
        );
    }
    Ok(shown)
}
