//! Indexes of other tables that have the names of ours. A table that is renamed keeps the names of
//! its indexes, and the migrations make no index whose name is taken.

use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::store::answers::Columns as _;
use crate::store::names::TableNames;
use crate::store::template::quoted;

/// An index of another table: its name, and that table's.
pub(super) struct Other {
    pub(super) name: String,
    pub(super) table: String,
}

/// Finds the indexes of all tables but one.
pub(super) const OTHERS: &str = "SELECT name, tbl_name FROM sqlite_master \
    WHERE type = 'index' AND tbl_name <> ?1 COLLATE NOCASE ORDER BY name";

impl Other {
    pub(super) fn read(row: &SqliteRow) -> sqlx::Result<Self> {
        Ok(Self { name: row.text(0)?, table: row.text(1)? })
    }
}

/// The indexes that have the names of ours, though their tables are others.
pub(super) async fn taken(
    connection: &mut SqliteConnection,
    names: &TableNames,
) -> Result<Vec<Other>, sqlx::Error> {
    // No table has an empty name, so these are the indexes of all.
    let all = sqlx::query(OTHERS).bind("").fetch_all(connection).await?;
    let mut all = all.iter().map(Other::read).collect::<Result<Vec<_>, _>>()?;
    let ours = names.indexes();
    all.retain(|other| {
        ours.iter().any(|(table, end)| {
            other.name.eq_ignore_ascii_case(&[table, *end].concat())
                && !other.table.eq_ignore_ascii_case(table)
        })
    });
    Ok(all)
}

pub(super) fn dropping(index: &str) -> String {
    format!("DROP INDEX {}", quoted(index))
}
