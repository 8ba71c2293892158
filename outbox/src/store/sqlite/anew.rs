//! The SQL that makes a table anew, with its rows: SQLite alters no column in place. `validate`
//! reports it where nothing smaller mends a difference.

use std::fmt::Write as _;

use uuid::Uuid;

use super::schema::every_table;
use super::validate::{Actual, NOW_HERE, Table};
use crate::schema::{Column, IDENTITY, NOW};
use crate::store::names::TableNames;
use crate::store::template::quoted;

impl Table<'_> {
    /// SQL that makes the table anew with its rows. Columns beyond ours are kept and may be NULL.
    /// Triggers and further indexes stay with the old table, and the SQL names them. The old table
    /// is never dropped: a shell that goes on after an error, or without the lock, would drop the
    /// messages with it.
    pub(super) fn anew(&self, names: &TableNames, template: &str, expected: &[Column]) -> String {
        // Nothing but this text knows the other two names.
        let mark = Uuid::new_v4().simple().to_string();
        let mark = &mark[..12];
        let old = format!("\"{template}\"");
        let [new, kept] = ["new", "before"].map(|what| format!("\"{template}_{what}_{mark}\""));
        let making = every_table();
        let create = making
            .split_once(&format!("CREATE TABLE IF NOT EXISTS {old} ("))
            .map_or("", |(_, made)| made);
        let create = create.split_once(") STRICT;").map_or("", |(made, _)| made);
        let on = format!(" ON {old} (");
        let indexes = making.split_inclusive(";\n").filter(|sql| sql.contains(&on));
        let (mut anew, mut ours) = (String::new(), Vec::new());
        for sql in indexes.filter_map(|sql| sql.split_inclusive("\n\n").last()) {
            let made = sql.find("CREATE ").map_or("", |at| &sql[at..]);
            let (made, _) = made.split_once(&on).unwrap_or_default();
            // The name that the index has here. It may begin with the dead-letter table's own name.
            let begun = names.sql(&[made, &on].concat());
            let begun = begun.strip_suffix(&*names.sql(&on)).unwrap_or_default();
            let (_, name) = begun.split_once(" IF NOT EXISTS ").unwrap_or_default();
            let _ = write!(anew, "DROP INDEX IF EXISTS {name};\n{}", names.sql(sql));
            ours.push(name.to_lowercase());
        }
        let create = names.sql(&format!("CREATE TABLE {new} ({create}) STRICT;\n"));
        let [old, new, kept] = [old, new, kept].map(|name| names.sql(&name));
        // Ids of rows that are gone must not be used again.
        let text = |name: &str| format!("'{}'", name.replace('\'', "''"));
        let ids = format!(
            "INSERT INTO sqlite_sequence (name, seq) SELECT {}, seq FROM sqlite_sequence \
             WHERE name = {} COLLATE NOCASE;\n",
            text(&new[1..new.len() - 1].replace("\"\"", "\"")),
            text(self.name)
        );
        let mut further = String::new();
        let (mut into, mut from) = (Vec::new(), Vec::new());
        let has = |name: &str| self.columns.iter().any(|actual| actual.name == name);
        for Actual { name, kind, default, .. } in &self.columns {
            let column = quoted(name);
            into.push(column.clone());
            // Half a lease would break the CHECK; no claim would ever take the row.
            let other_half = match &**name {
                "acquired_at" => Some("acquired_token"),
                "acquired_token" => Some("acquired_at"),
                _ => None,
            };
            let Some(ours) = expected.iter().find(|ours| ours.name == name) else {
                let strict = ["INT", "INTEGER", "REAL", "TEXT", "BLOB"];
                let kind =
                    strict.iter().find(|one| kind.eq_ignore_ascii_case(one)).unwrap_or(&"ANY");
                let default =
                    default.as_ref().map_or(String::new(), |value| format!(" DEFAULT ({value})"));
                let _ = writeln!(further, "ALTER TABLE {new} ADD COLUMN {column} {kind}{default};");
                from.push(column);
                continue;
            };
            let value = if self.strict && kind.eq_ignore_ascii_case(ours.sqlite) {
                column.clone()
            } else if name == "acquired_at" {
                // A lease whose time cannot be read is over.
                format!("iif({column} IS NULL, NULL, ifnull({}, 0))", micros(&column))
            } else if name.ends_with("_at") {
                micros(&column)
            } else {
                format!("CAST({column} AS {})", ours.sqlite)
            };
            from.push(match ours.default {
                _ if other_half.is_some_and(|other| !has(other)) => "NULL".into(),
                "'failed'" => {
                    format!("iif({value} IN ('failed', 'resolved', 'ignored'), {value}, 'failed')")
                }
                "" | IDENTITY => match other_half {
                    Some(other) => format!("iif({other} IS NULL, NULL, {value})"),
                    None => value,
                },
                // A value that cannot be read is refused, and not taken for a missing one.
                NOW => format!("iif({column} IS NULL, {NOW_HERE}, {value})"),
                default => format!("iif({column} IS NULL, {default}, {value})"),
            });
        }
        let comment = format!(
            "for SQLite 3.43; a shell with -bail. Drop {kept} when {old} has all its rows{}",
            self.left(&old, &ours)
        );
        format!(
            "-- {}\nPRAGMA busy_timeout = 60000;\nPRAGMA legacy_alter_table = ON;\n\
             PRAGMA foreign_keys = OFF;\nBEGIN IMMEDIATE;\n\
             {create}{further}{ids}INSERT INTO {new} ({}) SELECT {} FROM {old};\n\
             ALTER TABLE {old} RENAME TO {kept};\nALTER TABLE {new} RENAME TO {old};\n\
             {}COMMIT;\nPRAGMA legacy_alter_table = OFF",
            // A name may have more than one line.
            comment.replace(char::is_control, " "),
            into.join(", "),
            from.join(", "),
            anew
        )
    }

    /// Names what stays with the old table and is not made here: only its owner knows whether it is
    /// to go on.
    fn left(&self, old: &str, ours: &[String]) -> String {
        let made = |name: &&String| {
            // Indexes of a constraint have no SQL of their own.
            !name.starts_with("sqlite_") && !ours.contains(&quoted(name).to_lowercase())
        };
        let indexes = self.indexes.iter().map(|index| &index.name).filter(made);
        let indexes = indexes.map(|name| format!("index {}", quoted(name)));
        let triggers = self.triggers.iter().map(|name| format!("trigger {}", quoted(name)));
        let left: Vec<_> = triggers.chain(indexes).collect();
        if left.is_empty() {
            return String::new();
        }
        format!("; make these again on {old}: {}", left.join(", "))
    }
}

/// Converts a time in a column of another type to microseconds: a date as text, or a number of
/// seconds, milliseconds or microseconds, which lie far apart.
fn micros(column: &str) -> String {
    let number = format!("CAST({column} AS REAL)");
    format!(
        "CAST(CASE WHEN typeof({column}) = 'text' AND {column} GLOB '*[^0-9.]*' \
         THEN unixepoch({column}, 'subsec') * 1000000 WHEN {number} < 1e11 THEN {number} * 1000000 \
         WHEN {number} < 1e14 THEN {number} * 1000 ELSE {column} END AS INTEGER)"
    )
}
