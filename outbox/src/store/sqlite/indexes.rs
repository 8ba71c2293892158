//! Compares the indexes of a table with those that the statements need. An index counts if it does
//! what is expected, whatever its name. For one that is missing, the SQL that makes it is reported.

use sqlx::sqlite::SqliteRow;

use super::taken::{Other, dropping};
use super::validate::{Table, bare};
use crate::store::answers::Columns as _;

/// An index as it is.
pub(super) struct Index {
    pub(super) name: String,
    unique: bool,
    columns: Option<String>,
    /// As `bare`; empty for an index over all rows.
    predicate: String,
}

impl Index {
    pub(super) fn read(row: &SqliteRow) -> sqlx::Result<Self> {
        let sql = bare(&row.maybe(2, SqliteRow::text)?.unwrap_or_default());
        let partial = row.flag(3)?;
        let predicate = sql.rsplit_once("where").filter(|_| partial);
        Ok(Self {
            name: row.text(0)?,
            unique: row.flag(1)?,
            columns: row.maybe(4, SqliteRow::text)?,
            predicate: predicate.map_or(String::new(), |(_, text)| text.into()),
        })
    }
}

impl Table<'_> {
    /// Looks for an index that does what `sql` makes, whatever its name.
    pub(super) fn index(&mut self, fatal: bool, name: &str, columns: &str, sql: &str) {
        let unique = sql.starts_with("CREATE UNIQUE");
        let rows = sql.split_once(" WHERE ").map_or("", |(_, rows)| rows);
        let predicate = bare(rows);
        let alike =
            |index: &&Index| index.unique == unique && index.columns.as_deref() == Some(columns);
        let mut serving = self.indexes.iter().filter(alike);
        if serving.clone().any(|index| index.predicate == predicate) {
            return;
        }
        // An index over all rows serves ON CONFLICT too.
        let fatal = fatal && !serving.any(|index| index.predicate.is_empty());
        let taken = self.indexes.iter().any(|index| index.name.eq_ignore_ascii_case(name));
        let kind = if unique { "unique index" } else { "index" };
        let rows = if rows.is_empty() { String::new() } else { format!(" WHERE {rows}") };
        let mut what = format!("has no {kind} on ({}){rows}", columns.replace(',', ", "));
        let mut mend = self.making(name, sql);
        if let Some(other) = self.other(name) {
            what = format!("{what}; {name} is an index of {}", other.table);
        } else if taken {
            what = format!("{what}; {name} is another");
            mend = format!("{}; {mend}", dropping(name));
        }
        self.add(fatal, what, Some(mend));
    }

    /// The index of another table that has this name.
    fn other(&self, name: &str) -> Option<&Other> {
        self.others.iter().find(|other| other.name.eq_ignore_ascii_case(name))
    }

    /// The SQL that makes an index, though another table has one of its name.
    fn making(&self, name: &str, sql: &str) -> String {
        match self.other(name) {
            Some(other) => format!("{}; {sql}", other.freeing(self.name, &self.others)),
            None => sql.to_owned(),
        }
    }

    /// Looks for an index of this name. Statements that ask for the name do not find an index that
    /// does as much under another one.
    pub(super) fn named(&mut self, name: &str, sql: &str) {
        let makes = |mend: &str| mend.ends_with(sql);
        let missing = self.wrong.iter().any(|(.., mend)| mend.as_deref().is_some_and(makes));
        if !missing && !self.indexes.iter().any(|index| index.name.eq_ignore_ascii_case(name)) {
            let what =
                format!("has no index named {name}: operators' statements ask for it by name");
            self.add(false, what, Some(self.making(name, sql)));
        }
    }
}
