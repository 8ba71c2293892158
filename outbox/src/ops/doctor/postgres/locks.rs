//! Whether somebody keeps a table locked.

use crate::error::Result;
use crate::ops::doctor::names::count;
use crate::ops::doctor::report::Found;
use crate::ops::locked;
use crate::store::postgres::PgDesk;

pub(super) async fn check(desk: &PgDesk, found: &mut Found) -> Result<String> {
    let tables = desk.locked_tables().await?;
    for (table, by) in &tables {
        let told = locked(table, by);
        found.warning(told.what, told.means, told.next);
    }
    Ok(match tables.len() as u64 {
        0 => "nobody keeps a table locked".into(),
        locked => format!("{} locked", count(locked, "table")),
    })
}
