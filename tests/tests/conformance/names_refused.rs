//! Names are refused when they are made, not by the first statement that has
//! them: PostgreSQL would cut them, and two tables could share one.

use std::process::Command;

use outbox::TableNames;
use outbox::schema::{Database, sql};

/// What PostgreSQL keeps of an identifier.
const LIMIT: usize = 63;

#[derive(Debug, Clone, Copy)]
enum Name {
    Table,
    Schema,
    Dlq,
}

const EACH: [Name; 3] = [Name::Table, Name::Schema, Name::Dlq];

fn with(name: Name, text: &str) -> Result<TableNames, String> {
    match name {
        Name::Table => TableNames::new(text),
        Name::Schema => TableNames::default().in_schema(text),
        Name::Dlq => TableNames::default().with_dlq(text),
    }
    .map_err(|refused| refused.to_string())
}

/// Every name in the SQL that makes the tables.
fn identifiers(names: &TableNames) -> Vec<String> {
    let sql = sql(Database::Postgres, names);
    let code: Vec<_> = sql.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    code.join("\n").split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn an_empty_name() {
    for name in EACH {
        let refused = with(name, "").unwrap_err();
        assert!(refused.contains("is empty"), "{refused}");
    }
}

#[test]
fn a_name_with_nul() {
    for (name, text) in EACH.into_iter().zip(["\0", "a\0b", "a\0"]) {
        let refused = with(name, text).unwrap_err();
        assert!(refused.contains("holds NUL"), "{refused}");
    }
}

/// Quoted, it would be another table, and nobody who names the schema would find it.
#[test]
fn a_table_with_its_schema() {
    for (name, text) in [(Name::Table, "public.outbox"), (Name::Dlq, "public.dead")] {
        let refused = with(name, text).unwrap_err();
        assert!(refused.contains(text) && refused.contains("`OUTBOX_SCHEMA`"), "{refused}");
    }
    assert!(with(Name::Schema, "a.b").is_ok());
}

#[test]
fn a_name_says_which_one_it_is() {
    for (name, what) in EACH.into_iter().zip(["table", "schema", "dead-letter table"]) {
        let refused = with(name, &"x".repeat(64)).unwrap_err();
        assert!(refused.starts_with(&format!("the {what} name \"xxx")), "{refused}");
        assert!(refused.contains("64 bytes"), "{refused}");
    }
}

#[test]
fn no_identifier_is_longer_than_postgresql_keeps() {
    for name in EACH {
        let fits = |bytes: usize| with(name, &"x".repeat(bytes)).ok();
        let longest = (1..=LIMIT).rev().find_map(fits).unwrap();
        let lengths = || identifiers(&longest).into_iter().map(|name| name.len());
        assert_eq!(lengths().max(), Some(LIMIT), "{name:?}: {longest:?}");
        assert!(longest.channel().len() <= LIMIT);
    }
}

#[test]
fn every_length_either_fits_or_is_refused() {
    for name in EACH {
        for bytes in 1..=2 * LIMIT {
            let Ok(names) = with(name, &"x".repeat(bytes)) else { continue };
            for identifier in identifiers(&names) {
                assert!(identifier.len() <= LIMIT, "{name:?} of {bytes} bytes: {identifier}");
            }
        }
    }
}

/// Counted in bytes, not in characters: a cut could even split one.
#[test]
fn bytes_count_not_characters() {
    for name in EACH {
        assert!(with(name, &"é".repeat(21)).is_ok(), "{name:?}: 42 bytes");
        assert!(with(name, &"é".repeat(32)).is_err(), "{name:?}: 32 characters, 64 bytes");
    }
}

#[test]
fn one_table_for_both() {
    let refused = TableNames::new("same").unwrap().with_dlq("same").unwrap_err().to_string();
    assert!(refused.contains("the outbox table itself"), "{refused}");
}

const ASKED: &str = "OUTBOX_ASKED";
const READS: &str = "names_refused::a_name_of_the_environment_that_nobody_means";

/// What the environment makes of it. In a process of its own, which has this variable.
fn of_environment(variable: &str, value: &str) -> String {
    let mut own = Command::new(std::env::current_exe().unwrap());
    let ran = own.args(["--exact", READS, "--nocapture"]).env(variable, value).env(ASKED, "1");
    String::from_utf8(ran.output().unwrap().stdout).unwrap()
}

/// In the code such a name is meant.
#[test]
fn a_name_of_the_environment_that_nobody_means() {
    if std::env::var(ASKED).is_ok() {
        let read = TableNames::from_env().map_err(|refused| refused.to_string());
        println!("read: {read:?}");
        return;
    }
    let variables = ["OUTBOX_TABLE", "OUTBOX_SCHEMA", "OUTBOX_DLQ_TABLE"];
    for (variable, name) in variables.into_iter().zip(EACH) {
        for spoilt in ["shop\n", "shop\r\n", "shop ", "\tshop", "sh\u{7f}op", " "] {
            let said = of_environment(variable, spoilt);
            assert!(said.contains("read: Err") && said.contains(variable), "{spoilt:?}: {said}");
            assert!(with(name, spoilt).is_ok(), "{spoilt:?}");
        }
        for url in ["postgres://u:hunter2@host.eu/db", "postgres://u:hunter2@host/db"] {
            let said = of_environment(variable, url);
            assert!(said.contains("read: Err") && said.contains("DATABASE_URL"), "{said}");
            assert!(said.contains(variable) && !said.contains("hunter2"), "{said}");
        }
        assert!(of_environment(variable, "my shop").contains("read: Ok"));
    }
    let refused = with(Name::Table, "postgres://u:hunter2@host.eu/db").unwrap_err();
    assert!(refused.contains("has a dot") && !refused.contains("hunter2"), "{refused}");
}
