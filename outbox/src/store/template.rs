//! The statements of the stores, and the one place where a name becomes SQL. The files are written
//! for the default names of the tables. Here the names of the app are put in, quoted, so that no
//! name can break a statement.

use std::sync::Arc;

use super::names::TableNames;

/// Declares the statements of a store: a struct with one field for each file, which holds its text
/// with the names put in.
macro_rules! statements {
    ($vis:vis struct $name:ident { $($field:ident),+ $(,)? }) => {
        // Fields are called as the files are.
        #[allow(clippy::struct_field_names)]
        $vis struct $name {
            $($vis $field: std::sync::Arc<str>),+
        }

        impl $name {
            $vis fn new(names: &$crate::store::names::TableNames) -> Self {
                Self::with(names, |text| text.into())
            }

            /// With the texts of the files edited.
            $vis fn with(
                names: &$crate::store::names::TableNames,
                edit: impl Fn(&str) -> std::borrow::Cow<'_, str>,
            ) -> Self {
                Self {
                    $($field: names.sql(&edit(
                        include_str!(concat!("sql/", stringify!($field), ".sql")),
                    ))),+
                }
            }
        }
    };
}
pub(crate) use statements;

/// The text of the statement in this file, with the names put in.
macro_rules! sql {
    ($names:expr, $file:literal) => {
        $names.sql(include_str!(concat!("sql/", $file, ".sql")))
    };
}
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use sql;

impl TableNames {
    /// Puts the names into the text of a statement.
    ///
    /// Statements are written for the default names, in quotes. `"outbox"`, `"outbox_dlq"` and
    /// `"outbox_paused"` become the qualified tables; `"outbox_…"` and `"outbox_dlq_…"` become the
    /// names of their indexes and constraints.
    pub(crate) fn sql(&self, template: &str) -> Arc<str> {
        self.sql_with(template, &[])
    }

    /// The same. It also puts SQL, such as a quoted name, in the places of its marks.
    ///
    /// Invariant: what was put in is not looked at again. A name may hold a mark.
    pub(crate) fn sql_with(&self, template: &str, values: &[(&str, &str)]) -> Arc<str> {
        let mut sql = String::with_capacity(template.len() + 64);
        let mut rest = template;
        while let Some((at, value)) = next_mark(rest, values) {
            let (before, mark) = rest.split_at(at);
            let line = template[..template.len() - mark.len()].rsplit('\n').next();
            sql.push_str(before);
            rest = if line.is_some_and(|line| line.contains("--")) {
                // In a comment nothing is put in: a name with a line feed would end the comment.
                sql.push_str(&mark[..1]);
                &mark[1..]
            } else if let Some((name, value)) = value {
                sql.push_str(value);
                &mark[name.len()..]
            } else {
                let (name, tail) = mark[1..].split_once('"').unwrap_or((&mark[1..], ""));
                sql.push_str(&self.named(name, before));
                tail
            };
        }
        sql.push_str(rest);
        sql.into()
    }

    /// What replaces a name in quotes that begins with `outbox`.
    fn named(&self, name: &str, before: &str) -> String {
        let dlq = self.dlq_or_default();
        let (table, rest) = name.split_at("outbox".len());
        match (rest, rest.strip_prefix("_dlq_")) {
            ("", _) => self.qualified(self.table()),
            ("_dlq", _) => self.qualified(&dlq),
            ("_paused", _) => self.qualified(&self.paused()),
            // An index is made in the schema of its table. To be dropped, it is named in full.
            _ if before.ends_with("DROP INDEX IF EXISTS ") => {
                self.qualified(&format!("{}{rest}", self.table()))
            }
            (_, Some(index)) => quoted(&format!("{dlq}_{index}")),
            _ if rest.starts_with('_') => quoted(&format!("{}{rest}", self.table())),
            // The name of a header.
            _ => quoted(&format!("{table}{rest}")),
        }
    }
}

type Mark<'a> = (usize, Option<(&'a str, &'a str)>);

/// Where the next name or value stands.
fn next_mark<'a>(text: &str, values: &[(&'a str, &'a str)]) -> Option<Mark<'a>> {
    let values = values.iter().filter_map(|&value| Some((text.find(value.0)?, Some(value))));
    let name = text.find("\"outbox").map(|at| (at, None));
    values.chain(name).min_by_key(|(at, _)| *at)
}

pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// SQL that runs `body`, whatever the names in it contain.
#[cfg(feature = "postgres")]
pub(crate) fn block(body: &str) -> String {
    let mut tag = "$$".to_owned();
    let mut number = 0;
    while body.contains(&tag) {
        number += 1;
        tag = format!("$outbox{number}$");
    }
    format!("DO {tag} {body} {tag};")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_take_any_name() {
        let names = TableNames::new("my \"box").unwrap().in_schema("s").unwrap();
        let sql = names.sql("INSERT INTO \"outbox\" SELECT \"outbox_due_idx\", \"outbox_dlq\", \"outbox_dlq_a_idx\";");
        assert_eq!(
            &*sql,
            "INSERT INTO \"s\".\"my \"\"box\" SELECT \"my \"\"box_due_idx\", \
             \"s\".\"my \"\"box_dlq\", \"my \"\"box_dlq_a_idx\";"
        );
        let header = "SELECT '$.\"outbox-replays\"'";
        assert_eq!(&*names.sql(header), header);
        let plain = "SELECT 1 FROM \"outbox\" JOIN \"outbox_dlq\"";
        assert_eq!(&*TableNames::default().sql(plain), plain);
    }

    #[test]
    fn what_was_put_in_is_not_looked_at_again() {
        let names = TableNames::new("{a} {b}").unwrap();
        let sql = names.sql_with("{a} \"outbox\" {b}", &[("{a}", "\"outbox\""), ("{b}", "{a}")]);
        assert_eq!(&*sql, "\"outbox\" \"{a} {b}\" {a}");
        let comment = "-- of \"outbox\", {a}\nSELECT {a}";
        assert_eq!(&*names.sql_with(comment, &[("{a}", "1")]), "-- of \"outbox\", {a}\nSELECT 1");
    }
}
