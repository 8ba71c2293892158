//! A SQLite file: whether it is whole, can be written, and does not grow.

use std::time::Duration;

use super::report::Found;
use super::{Limits, Report, make};
use crate::error::Result;
use crate::store::sqlite::SqliteDesk;

pub(super) async fn examine(desk: &SqliteDesk, limits: &Limits, report: &mut Report) {
    make!(report, "integrity", integrity(desk));
    make!(report, "journal", journal(desk));
    make!(report, "busy", busy(desk));
    make!(report, "writing", writing(desk));
    make!(report, "file", file(desk));
    make!(report, "wal", wal(desk, limits));
}

/// Whether the file is whole.
async fn integrity(desk: &SqliteDesk, found: &mut Found) -> Result<String> {
    let damages = desk.damages().await?;
    if damages.is_empty() {
        return Ok("the file is whole".into());
    }
    found.error(
        format!("the file is damaged: {}", damages.join("; ")),
        "messages may be lost already, and every write may lose more",
        "stop what writes to it, keep a copy, and restore a backup or run `.recover` of the \
         program `sqlite3` on the copy",
    );
    Ok(format!("{} damages", damages.len()))
}

/// Whether readers and the writer get along.
async fn journal(desk: &SqliteDesk, found: &mut Found) -> Result<String> {
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

/// How long a writer of this program waits for another one. The file has no such setting.
async fn busy(desk: &SqliteDesk, found: &mut Found) -> Result<String> {
    const ENOUGH: Duration = Duration::from_secs(1);
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

/// Whether this program may write.
async fn writing(desk: &SqliteDesk, found: &mut Found) -> Result<String> {
    let Err(refused) = desk.try_to_write().await else {
        return Ok("the file can be written".into());
    };
    if !SqliteDesk::is_of_the_file(&refused) {
        return Err(refused.into());
    }
    if SqliteDesk::is_locked(&refused) {
        found.warning(
            "another writer has had the file locked for the whole busy timeout",
            "nothing is published or handled while it does",
            "end its transaction: `fuser` on the file names the processes that have it open",
        );
    } else {
        found.error(
            format!("the file cannot be written: {}", refused.source),
            "nothing can be published, claimed or settled",
            "give this user the right to write the file and its folder, where the write-ahead \
             log is made; take `mode=ro` out of the URL; make room if the disk is full",
        );
    }
    Ok("the file cannot be written now".into())
}

/// Who may read and write the file.
// Like its siblings.
#[allow(clippy::unused_async)]
async fn file(desk: &SqliteDesk, found: &mut Found) -> Result<String> {
    let file = desk.file();
    let name = file.display();
    let Some(mode) = mode(&file) else {
        return Ok("there is no file, or its permissions are not known".into());
    };
    if mode & 0o022 != 0 {
        found.warning(
            format!("other users may write {name} (mode {mode:03o})"),
            "whoever writes to it gives this program messages to handle",
            format!("`chmod 600 {name}`, or 640 with a group of its own"),
        );
    } else if mode & 0o004 != 0 {
        found.note(
            format!("every user of this machine may read {name} (mode {mode:03o})"),
            "payloads and texts of errors are in it",
            format!("`chmod 600 {name}`, or 640 with a group of its own"),
        );
    }
    Ok(format!("its mode is {mode:03o}"))
}

#[cfg(unix)]
fn mode(file: &std::path::Path) -> Option<u32> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(file).ok().map(|found| found.permissions().mode() & 0o777)
}

#[cfg(not(unix))]
fn mode(_: &std::path::Path) -> Option<u32> {
    None
}

/// Whether the write-ahead log is written back.
// Like its siblings.
#[allow(clippy::unused_async)]
async fn wal(desk: &SqliteDesk, limits: &Limits, found: &mut Found) -> Result<String> {
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
