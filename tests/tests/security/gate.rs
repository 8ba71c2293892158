//! SQL is made in one place, where every name is quoted. Elsewhere it is a text that
//! stands in a file or a constant. Looked for in the sources, which are ours: a gate
//! against a slip, not against malice.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What makes statements: names in quotes, where a text has its marks; and for SQLite
/// triggers, of our own texts.
const MAKERS: [&str; 2] = ["store/sqlite/batch.rs", "store/template.rs"];
/// What runs texts that were made there: nothing else says `AssertSqlSafe`, without
/// which sqlx takes constants alone.
const RUNNERS: [&str; 10] = [
    "schema.rs",
    "store/postgres/adopt.rs",
    "store/postgres/mod.rs",
    "store/postgres/partitions.rs",
    "store/postgres/schema.rs",
    "store/postgres/vacuum.rs",
    "store/sqlite/batch.rs",
    "store/sqlite/connect.rs",
    "store/sqlite/mod.rs",
    "store/sqlite/schema.rs",
];
/// Where SQL is put together for people to read, and how often. Nothing runs it.
const TOLD: &[(&str, usize)] = &[
    ("ops/doctor/postgres/server.rs", 1),
    ("ops/doctor/postgres/snapshots.rs", 2),
    ("ops/doctor/postgres/vacuum.rs", 1),
    ("ops/why/told.rs", 1),
    ("schema.rs", 1),
    ("store/postgres/indexes.rs", 5),
    ("store/postgres/rights.rs", 4),
    ("store/postgres/taken.rs", 2),
    ("store/postgres/validate.rs", 10),
    ("store/sqlite/anew.rs", 6),
    ("store/sqlite/indexes.rs", 1),
    ("store/sqlite/taken.rs", 1),
    ("store/sqlite/validate.rs", 2),
];

const WORDS: [&str; 21] = [
    "SELECT ",
    "INSERT ",
    "UPDATE ",
    "DELETE ",
    "ALTER ",
    "DROP ",
    "CREATE ",
    "TRUNCATE ",
    "LOCK ",
    "VACUUM ",
    "GRANT ",
    "REVOKE ",
    "LISTEN ",
    "NOTIFY ",
    "SET ",
    "EXPLAIN ",
    "PRAGMA ",
    "ATTACH ",
    "COPY ",
    "EXECUTE ",
    "WHERE ",
];
/// Each makes a text of several.
const MADE_BY: [&str; 7] =
    ["format!(", "write!(", "writeln!(", "concat!(", "format_args!(", "push_str(", "replace("];

fn sources() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../outbox/src");
    let mut folders = vec![root.clone()];
    let mut sources = BTreeMap::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                sources.insert(name, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    assert!(sources.len() > 150, "these are not the sources");
    // A file of tests.
    sources.remove("store/sqlite/tests/plans.rs").unwrap();
    sources
}

/// Without comments, and what stands behind the first test.
fn code(source: &str) -> String {
    let lines = source.lines().take_while(|line| *line != "mod tests {");
    let code = lines.filter(|line| !line.trim_start().starts_with("//"));
    code.collect::<Vec<_>>().join("\n")
}

/// What is between the parenthesis that was opened and its end.
fn inside(text: &str) -> &str {
    let mut depth = 1;
    let (mut quoted, mut escaped) = (false, false);
    for (at, sign) in text.char_indices() {
        match sign {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
    }
    text
}

fn has_sql(text: &str) -> bool {
    WORDS.iter().any(|word| {
        let mut found = text.match_indices(word);
        found.any(|(at, _)| {
            !text[..at].ends_with(|before: char| before.is_ascii_uppercase() || before == '_')
        })
    })
}

/// Places where a text with SQL in it is put together.
fn made(code: &str) -> Vec<&str> {
    let mut made = Vec::new();
    for maker in MADE_BY {
        let calls = code.match_indices(maker).map(|(at, _)| inside(&code[at + maker.len()..]));
        made.extend(calls.filter(|call| has_sql(call)));
    }
    let owned = [".to_owned()", ".to_string()", "String::from(", "\" + ", " += "];
    let lines = code.lines().filter(|line| line.contains('"') && has_sql(line));
    made.extend(
        lines.filter(|line| owned.iter().any(|it| line.contains(it)) && !line.contains("format!")),
    );
    made
}

#[test]
fn sql_is_made_in_one_place() {
    let mut found = BTreeMap::new();
    for (name, source) in sources() {
        let code = code(&source);
        let count = made(&code).len();
        if count > 0 && !MAKERS.contains(&&*name) {
            found.insert(name, (count, made(&code).join("\n    ")));
        }
    }
    let counts: Vec<_> = found.iter().map(|(name, (count, _))| (name.as_str(), *count)).collect();
    assert_eq!(counts, TOLD, "SQL is put together in other places: {found:#?}");
}

#[test]
fn texts_are_run_in_few_places() {
    let sources = sources();
    let runs = |source: &String| code(source).contains("AssertSqlSafe(");
    let runners: Vec<_> =
        sources.iter().filter(|(_, source)| runs(source)).map(|(name, _)| name.as_str()).collect();
    assert_eq!(runners, RUNNERS);
    for (name, source) in &sources {
        let code = code(source);
        for (at, mark) in code.match_indices("AssertSqlSafe(") {
            let run = inside(&code[at + mark.len()..]);
            let plain = run.chars().all(|sign| sign.is_alphanumeric() || "_.:&()".contains(sign));
            assert!(plain && !run.contains("format"), "{name} runs {run}");
        }
    }
}

/// The gate is shut for each of these.
#[test]
fn the_gate_is_shut() {
    for line in [
        "query(&format!(\"DELETE FROM {table}\"))",
        "let sql = format!(\n    \"SELECT 1 \\\n FROM {}\", quoted(table));",
        "let sql = \"DROP TABLE \".to_owned() + table;",
        "let mut sql = String::from(\"LOCK TABLE \");",
        "sql += \" WHERE queue = '\";",
        "let _ = write!(sql, \" WHERE id = {id}\");",
        "text.replace(\"{queue}\", &format!(\"SELECT '{queue}'\"))",
        "concat!(\"UPDATE \", \"a\")",
    ] {
        assert!(!made(line).is_empty(), "{line}");
    }
    assert!(made("let text = format!(\"{SELECTED} of {count}\");").is_empty());
    assert!(made("names.sql_with(\"DROP TABLE {table}\", &values)").is_empty());
}

#[test]
fn unsafe_code_is_forbidden_in_every_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let workspace = read("Cargo.toml");
    assert!(workspace.contains("unsafe_code = \"forbid\""));
    let members = workspace.split("members = [").nth(1).unwrap().split(']').next().unwrap();
    let members: Vec<_> = members.split('"').skip(1).step_by(2).collect();
    assert!(members.len() >= 5, "{members:?}");
    for member in members {
        let manifest = read(&format!("{member}/Cargo.toml"));
        let own = manifest.contains("[lints.rust]\nunsafe_code = \"forbid\"");
        assert!(own || manifest.contains("[lints]\nworkspace = true"), "{member} may be unsafe");
    }
}
