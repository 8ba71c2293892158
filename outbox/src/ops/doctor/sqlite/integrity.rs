//! Whether the file is whole.

use crate::error::Result;
use crate::ops::doctor::report::Found;
use crate::store::sqlite::SqliteDesk;

pub(super) async fn check(desk: &SqliteDesk, found: &mut Found) -> Result<String> {
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
