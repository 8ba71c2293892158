//! Whether readers and the writer get along.

use crate::error::Result;
use crate::ops::doctor::report::Found;
use crate::store::sqlite::SqliteDesk;

pub(super) async fn check(desk: &SqliteDesk, found: &mut Found) -> Result<String> {
    let mode = desk.journal_mode().await?;
    if mode != "wal" {
        found.warning(
            format!("the journal mode is `{mode}` instead of `wal`"),
            "readers and the writer keep each other waiting, until one fails with \"database is \
             locked\"",
            "`PRAGMA journal_mode = wal` once, or open the file by `outbox::sqlite::connect`, as \
             an app of `DATABASE_URL` does",
        );
    }
    Ok(format!("the journal mode is `{mode}`"))
}
