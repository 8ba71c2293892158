//! Whether this program may write.

use crate::error::Result;
use crate::ops::doctor::report::Found;
use crate::store::sqlite::SqliteDesk;

pub(super) async fn check(desk: &SqliteDesk, found: &mut Found) -> Result<String> {
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
