//! Indexes of other tables that have the names of ours. A table that is renamed keeps the names of
//! its indexes, and the migrations make no index whose name is taken.

use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::store::answers::Columns as _;
use crate::store::names::TableNames;
use crate::store::template::quoted;

/// An index of another table: its name, that table's, and the SQL that made it.
#[derive(Clone)]
pub(super) struct Other {
    pub(super) name: String,
    pub(super) table: String,
    sql: Option<String>,
}

/// Finds the indexes of all tables but one.
pub(super) const OTHERS: &str = "SELECT name, tbl_name, sql FROM sqlite_master \
    WHERE type = 'index' AND tbl_name <> ?1 COLLATE NOCASE ORDER BY name";

impl Other {
    pub(super) fn read(row: &SqliteRow) -> sqlx::Result<Self> {
        Ok(Self { name: row.text(0)?, table: row.text(1)?, sql: row.maybe(2, SqliteRow::text)? })
    }

    /// The SQL that frees the name, which begins with that of our table: the index is made once more
    /// under the name that it would have had from its own, so that whoever writes there is not left
    /// without it. Where its table has one of this name among these, that is enough.
    pub(super) fn freeing(&self, ours: &str, all: &[Self]) -> String {
        let end = self.name.get(ours.len()..).unwrap_or_default();
        let mut own = [&self.table, end].concat();
        // A third table may have it, which once had the name of this one.
        let is_of_third =
            |one: &Self, own: &str| one.table != self.table && one.name.eq_ignore_ascii_case(own);
        while all.iter().any(|one| is_of_third(one, &own)) {
            own.push_str("_2");
        }
        let is_own = |one: &Self| one.name.eq_ignore_ascii_case(&own);
        let again = self.sql.as_deref().filter(|_| !all.iter().any(is_own)).and_then(|sql| {
            // SQLite keeps the statement from its first words on, with the name as it was written.
            let (create, rest) = sql.split_once(" INDEX ")?;
            let name = quoted(&self.name);
            let on = rest.strip_prefix(&*name).or_else(|| rest.strip_prefix(&*self.name))?;
            Some(format!("{create} INDEX {}{on}; ", quoted(&own)))
        });
        again.unwrap_or_default() + &dropping(&self.name)
    }
}

/// The indexes that have the names of ours, though their tables are others, and the SQL that frees
/// the names.
pub(super) async fn taken(
    connection: &mut SqliteConnection,
    names: &TableNames,
) -> Result<Vec<(Other, String)>, sqlx::Error> {
    // No table has an empty name, so these are the indexes of all.
    let all = sqlx::query(OTHERS).bind("").fetch_all(connection).await?;
    let all = all.iter().map(Other::read).collect::<Result<Vec<_>, _>>()?;
    let ours = names.indexes();
    let taken = all.iter().filter_map(|other| {
        let (table, _) = ours.iter().find(|(table, end)| {
            other.name.eq_ignore_ascii_case(&[table, *end].concat())
                && !other.table.eq_ignore_ascii_case(table)
        })?;
        Some((other.clone(), other.freeing(table, &all)))
    });
    Ok(taken.collect())
}

pub(super) fn dropping(index: &str) -> String {
    format!("DROP INDEX {}", quoted(index))
}
