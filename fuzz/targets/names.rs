//! Any names of tables: refused, or SQL whose structure does not depend on them.

use outbox::schema::{Database, sql};
use outbox::{NameError, TableNames};

/// Three names, in lines.
fn named(data: &[u8]) -> Result<TableNames, NameError> {
    let text = String::from_utf8_lossy(data);
    // A line feed is a sign like any other, so lines end with another one.
    let mut names = text.split('|');
    let mut next = || names.next().unwrap_or("a");
    TableNames::new(next())?.with_dlq(next())?.in_schema(next())
}

/// A statement without its comments, and with every name and text in quotes as one sign.
/// The names have quotes doubled and nothing escaped, as standard SQL reads them.
fn skeleton(sql: &str) -> String {
    let (mut bones, mut rest) = (String::new(), sql);
    while let Some(sign) = rest.chars().next() {
        let skip = match sign {
            '"' | '\'' => {
                let mut end = 1;
                while let Some(at) = rest[end..].find(sign) {
                    end += at + 1;
                    if !rest[end..].starts_with(sign) {
                        break;
                    }
                    end += 1;
                }
                bones.push(sign);
                end
            }
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            _ => {
                bones.push(sign);
                sign.len_utf8()
            }
        };
        rest = &rest[skip..];
    }
    bones
}

pub fn target(data: &[u8]) {
    let Ok(names) = named(data) else { return };
    let usual = TableNames::default().with_dlq("outbox_dlq").and_then(|it| it.in_schema("s"));
    let usual = usual.expect("good names");
    for database in [Database::Postgres, Database::Sqlite] {
        assert_eq!(skeleton(&sql(database, &names)), skeleton(&sql(database, &usual)), "{names:?}");
    }
    assert!(names.channel().len() <= 63);
}
