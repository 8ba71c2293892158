//! Which names tables and schemas may have.

/// PostgreSQL cuts longer identifiers, so two of them could become one.
const MAX_IDENTIFIER_BYTES: usize = 63;

/// A name that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the {what} {name:?} {why}")]
pub struct NameError {
    pub(super) what: &'static str,
    pub(super) name: String,
    pub(super) why: String,
}

impl NameError {
    /// Where the name comes from.
    pub(super) fn of(self, what: &'static str) -> Self {
        Self { what, ..self }
    }
}

/// Refuses a name that nobody means, and that the databases would take: with the end of the line
/// that it was read from, or one that belongs into another variable.
pub(super) fn meant(name: String) -> Result<String, NameError> {
    let why = if name.contains("://") {
        "is a URL, which belongs into `DATABASE_URL`"
    } else if name.contains(char::is_control) || name.trim().len() < name.len() {
        "begins or ends with white space, or has a control character such as a line break in it"
    } else if name.contains(char::REPLACEMENT_CHARACTER) {
        // What a variable's bytes that are not UTF-8 are read as.
        "is not UTF-8"
    } else {
        return Ok(name);
    };
    Err(NameError { what: "name", name: told(&name), why: why.into() })
}

/// A name or a value as errors have it. A URL may hold a password, so no message repeats it.
pub(crate) fn told(name: &str) -> String {
    name.find("://").map_or_else(|| name.to_owned(), |end| format!("{}://..", &name[..end]))
}

/// Checks the name of a table, from which longer ones are derived, or of a schema, from which none
/// is.
pub(super) fn check(what: &'static str, name: &str, additions: &[&str]) -> Result<(), NameError> {
    const KEPT: &[u8] = b"sqlite_";
    let refuse = |why: &str| Err(NameError { what, name: told(name), why: why.into() });
    if name.is_empty() {
        return refuse("is empty");
    }
    if name.contains('\0') {
        return refuse("holds NUL");
    }
    let addition = additions.iter().map(|text| text.len()).max().unwrap_or(0);
    let limit = MAX_IDENTIFIER_BYTES - addition;
    if name.len() > limit {
        return refuse(&format!(
            "has {} bytes; at most {limit} leave room for the names derived from it",
            name.len()
        ));
    }
    if additions.is_empty() {
        return Ok(());
    }
    if name.contains('.') {
        // Quoted, it would be a table beside the one that is meant.
        return refuse("has a dot: name a schema with `OUTBOX_SCHEMA` or `in_schema`");
    }
    if name.eq_ignore_ascii_case("sqlx") {
        return refuse(
            "would keep its record of migrations in `_sqlx_migrations`, where sqlx keeps the one \
             of your own migrations",
        );
    }
    let begin = name.as_bytes().get(..KEPT.len());
    if begin.is_some_and(|begin| begin.eq_ignore_ascii_case(KEPT)) {
        return refuse("begins with `sqlite_`, which SQLite keeps for itself");
    }
    Ok(())
}
