//! Whether the write-ahead log is written back.

use crate::error::Result;
use crate::ops::doctor::Limits;
use crate::ops::doctor::report::Found;
use crate::store::sqlite::SqliteDesk;

// Like its siblings.
#[allow(clippy::unused_async)]
pub(super) async fn check(desk: &SqliteDesk, limits: &Limits, found: &mut Found) -> Result<String> {
    let file = desk.file();
    // If the file is a link, SQLite keeps the log beside the file that it leads to.
    let mut log = std::fs::canonicalize(&file).unwrap_or(file).into_os_string();
    log.push("-wal");
    let bytes = std::fs::metadata(&log).map_or(0, |found| found.len());
    let shown = format!("the write-ahead log has {bytes} bytes");
    if bytes > limits.wal_bytes {
        found.warning(
            &shown,
            "every read looks through it, and the disk may fill",
            "end transactions that read for long; then `PRAGMA wal_checkpoint(TRUNCATE)`",
        );
    }
    Ok(shown)
}
