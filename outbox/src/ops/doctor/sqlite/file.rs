//! Who may read and write the file.

use crate::error::Result;
use crate::ops::doctor::report::Found;
use crate::store::sqlite::SqliteDesk;

// Like its siblings.
#[allow(clippy::unused_async)]
pub(super) async fn check(desk: &SqliteDesk, found: &mut Found) -> Result<String> {
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
