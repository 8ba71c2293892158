//! Names of tables.

mod check;

pub use check::NameError;
pub(crate) use check::told;
use check::{check, meant};

use super::template::quoted;

/// The ends of the names that are made of an outbox table's name, and of a dead-letter table's.
const BESIDE: [&str; 6] = ["", "_paused", "_paused_pkey", "_due_idx", "_timer_id_uq", "_pkey"];
const BESIDE_LETTERS: [&str; 6] =
    ["", "_queue_failed_idx", "_status_idx", "_open_idx", "_group_idx", "_pkey"];

/// Where the tables are: schema, outbox table, dead-letter table.
///
/// Every name is quoted wherever it is used, so any text that the databases can
/// hold is allowed. Only a dot in the name of a table is refused: the part before it
/// would look like a schema.
///
/// # Examples
/// ```
/// use outbox::TableNames;
///
/// let names = TableNames::new("outbox")?.in_schema("shop")?.with_dlq("outbox_dlq")?;
/// assert_eq!(names.channel(), "outbox_outbox");
/// assert!(TableNames::new("x".repeat(60)).is_err()); // its index names would be too long
/// # Ok::<(), outbox::NameError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableNames {
    schema: Option<String>,
    table: String,
    dlq: Option<String>,
    notify: Notify,
    unprepared: bool,
}

/// When a publish notifies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Notify {
    #[default]
    Asleep,
    Always,
    Never,
}

impl Default for TableNames {
    fn default() -> Self {
        let (table, notify) = ("outbox".into(), Notify::Asleep);
        Self { schema: None, table, dlq: None, notify, unprepared: false }
    }
}

impl TableNames {
    /// The outbox table, wherever the connection's `search_path` finds it, and
    /// no dead-letter table.
    ///
    /// # Errors
    /// When the name
    /// - is empty, holds NUL, or begins with `sqlite_`;
    /// - holds a dot: [`TableNames::in_schema`] names the schema;
    /// - is `sqlx`: its record of migrations would be that of your own;
    /// - has more than 42 bytes: a name derived from it (an index, the record of migrations,
    ///   `<table>_dlq` and its index, the NOTIFY channel) would have more than 63.
    pub fn new(table: impl Into<String>) -> Result<Self, NameError> {
        let table = table.into();
        let names = Self { table, ..Self::default() };
        let derived = ["outbox_", "_timer_id_uq", "__migrations", "_dlq_queue_failed_idx"];
        check("table name", &names.table, &derived)?;
        Ok(names)
    }

    /// Puts both tables into a schema.
    ///
    /// # Errors
    /// When the name is empty, holds NUL or has more than 63 bytes.
    pub fn in_schema(mut self, schema: impl Into<String>) -> Result<Self, NameError> {
        let schema = schema.into();
        check("schema name", &schema, &[])?;
        self.schema = Some(schema);
        Ok(self)
    }

    /// Keeps dead letters in this table. Give each outbox one of its own: a letter does not say
    /// from which outbox it comes, and a replay puts it into the outbox of whoever replays it.
    ///
    /// # Errors
    /// When the name is empty, holds NUL or a dot, begins with `sqlite_`, is `sqlx`, or has more
    /// than 46 bytes, because the name of its index is longer. Also when one of the two tables, or
    /// what is made beside it, would have a name of the other. Case makes no difference, because
    /// it makes none on SQLite.
    pub fn with_dlq(mut self, dlq: impl Into<String>) -> Result<Self, NameError> {
        let dlq = dlq.into();
        check("dead-letter table name", &dlq, &["_queue_failed_idx", "_status_ck"])?;
        if let Some(why) = self.clash(&dlq) {
            return Err(NameError { what: "dead-letter table name", name: dlq, why });
        }
        self.dlq = Some(dlq);
        Ok(self)
    }

    /// Why the dead letters cannot be in a table of this name.
    fn clash(&self, dlq: &str) -> Option<String> {
        if dlq.eq_ignore_ascii_case(&self.table) {
            return Some("is the name of the outbox table itself".into());
        }
        let mut own = BESIDE.map(|end| format!("{}{end}", self.table)).to_vec();
        own.push(format!("_{}_migrations", self.table));
        let mut letters = BESIDE_LETTERS.map(|end| format!("{dlq}{end}")).to_vec();
        letters.push(format!("_{dlq}_migrations"));
        let taken =
            own.into_iter().find(|one| letters.iter().any(|it| it.eq_ignore_ascii_case(one)));
        taken.map(|name| format!("would make {name:?} twice, once beside each table"))
    }

    /// Notifies of every message. Use it for a table on which others listen, such as a
    /// Python service. Every publisher and every consumer of the table needs it.
    ///
    /// Without it a publisher on PostgreSQL notifies only if a consumer of this framework
    /// sleeps. Busy consumers look by themselves, and the server handles one commit that
    /// notifies at a time.
    #[must_use]
    pub fn always_notify(self) -> Self {
        Self { notify: Notify::Always, ..self }
    }

    /// Notifies of no message. Consumers find what is published at their next poll,
    /// `max_poll` at the latest. One publisher may use this without the others. It is for:
    /// - a transaction that is prepared for a commit in two phases (`PREPARE TRANSACTION`):
    ///   PostgreSQL refuses to prepare one that has notified;
    /// - the time while the server's NOTIFY queue is full: every commit that notifies fails.
    #[must_use]
    pub fn never_notify(self) -> Self {
        Self { notify: Notify::Never, ..self }
    }

    /// Publishes without named prepared statements. Use it for a service on PostgreSQL whose
    /// connections go through a pooler in transaction mode that knows no such statements, as
    /// PgBouncer before 1.21: the next session there has prepared others.
    ///
    /// Each publish then takes one more answer of the server. Your own statements need
    /// [`persistent(false)`](sqlx::query::Query::persistent) too. This is for publishers only: an
    /// app that consumes does not start behind such a pooler.
    #[must_use]
    pub fn unprepared(self) -> Self {
        Self { unprepared: true, ..self }
    }

    /// Reads the environment:
    /// - `OUTBOX_TABLE`, by default `outbox`;
    /// - `OUTBOX_SCHEMA`;
    /// - `OUTBOX_DLQ_TABLE`: if unset, dead letters are not kept;
    /// - `OUTBOX_NOTIFY`: `always` (see [`TableNames::always_notify`]), `never` (see
    ///   [`TableNames::never_notify`]) or `asleep`, the default;
    /// - `OUTBOX_PREPARED`: `false` (see [`TableNames::unprepared`]) or `true`, the default.
    ///
    /// # Errors
    /// The first value that cannot be used. Such a name is also one that begins or ends with white
    /// space, has a control character in it, or is a URL.
    pub fn from_env() -> Result<Self, NameError> {
        let (names, mut wrong) = Self::from_lookup(variable);
        if wrong.is_empty() { Ok(names) } else { Err(wrong.remove(0)) }
    }

    /// As [`TableNames::from_env`], with every value that cannot be used.
    pub(crate) fn from_lookup(get: impl Fn(&str) -> Option<String>) -> (Self, Vec<NameError>) {
        let mut wrong = Vec::new();
        let mut names = Self::default();
        let mut apply = |value: Option<String>,
                         set: fn(Self, String) -> Result<Self, NameError>| {
            let Some(value) = value else { return };
            match set(names.clone(), value) {
                Ok(changed) => names = changed,
                Err(error) => wrong.push(error),
            }
        };
        apply(get("OUTBOX_TABLE"), |_, table| {
            let names = meant(table).and_then(Self::new);
            names.map_err(|error| error.of("table name in `OUTBOX_TABLE`"))
        });
        apply(get("OUTBOX_SCHEMA"), |names, schema| {
            let names = meant(schema).and_then(|schema| names.in_schema(schema));
            names.map_err(|error| error.of("schema name in `OUTBOX_SCHEMA`"))
        });
        apply(get("OUTBOX_DLQ_TABLE"), |names, dlq| {
            let names = meant(dlq).and_then(|dlq| names.with_dlq(dlq));
            names.map_err(|error| error.of("dead-letter table name in `OUTBOX_DLQ_TABLE`"))
        });
        apply(get("OUTBOX_NOTIFY"), |names, value| match value.as_str() {
            "always" => Ok(names.always_notify()),
            "never" => Ok(names.never_notify()),
            "asleep" => Ok(names),
            _ => {
                let why = "is none of `always`, `never` and `asleep`".into();
                Err(NameError { what: "value of `OUTBOX_NOTIFY`", name: told(&value), why })
            }
        });
        apply(get("OUTBOX_PREPARED"), |names, value| match value.as_str() {
            "true" => Ok(names),
            "false" => Ok(names.unprepared()),
            _ => {
                let why = "is neither `true` nor `false`".into();
                Err(NameError { what: "value of `OUTBOX_PREPARED`", name: told(&value), why })
            }
        });
        (names, wrong)
    }

    /// The outbox table.
    #[must_use]
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The schema, if one was named.
    #[must_use]
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// The dead-letter table, if dead letters are kept.
    #[must_use]
    pub fn dlq(&self) -> Option<&str> {
        self.dlq.as_deref()
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn notify(&self) -> Notify {
        self.notify
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn is_prepared(&self) -> bool {
        !self.unprepared
    }

    /// Takes over from `others` how to publish, where these names leave it open.
    pub(crate) fn publishing_as(mut self, others: &Self) -> Self {
        if self.notify == Notify::default() {
            self.notify = others.notify;
        }
        self.unprepared |= others.unprepared;
        self
    }

    /// The dead-letter table that a migration makes, whether or not letters are kept.
    pub(crate) fn dlq_or_default(&self) -> String {
        self.dlq.clone().unwrap_or_else(|| format!("{}_dlq", self.table))
    }

    #[cfg(feature = "cli")]
    pub(crate) fn with_letters(&self) -> Self {
        Self { dlq: Some(self.dlq_or_default()), ..self.clone() }
    }

    /// The table of paused queues.
    pub(crate) fn paused(&self) -> String {
        format!("{}_paused", self.table)
    }

    /// The tables that a migration makes.
    pub(crate) fn tables(&self) -> [String; 3] {
        [self.table.clone(), self.dlq_or_default(), self.paused()]
    }

    /// The indexes that a migration makes: the table of each, and the end of its name, which begins
    /// with the table's.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn indexes(&self) -> Vec<(String, &'static str)> {
        let is_index = |end: &&str| end.ends_with("_idx") || end.ends_with("_uq");
        let of = |table: &str, ends: [&'static str; 6]| {
            let ends = ends.into_iter().filter(is_index);
            ends.map(|end| (table.to_owned(), end)).collect::<Vec<_>>()
        };
        [of(&self.table, BESIDE), of(&self.dlq_or_default(), BESIDE_LETTERS)].concat()
    }

    /// The dead-letter table and its indexes, without the schema.
    #[cfg(feature = "postgres")]
    pub(crate) fn beside_letters(&self) -> Vec<String> {
        let dlq = self.dlq_or_default();
        BESIDE_LETTERS.map(|end| format!("{dlq}{end}")).to_vec()
    }

    /// The NOTIFY channel, the same that Python services use.
    #[must_use]
    pub fn channel(&self) -> String {
        format!("outbox_{}", self.table)
    }

    /// The table that records which migrations ran.
    ///
    /// The migrations make the dead-letter table too, so a dead-letter table of another
    /// name makes another set of tables. The set has a record of its own, called after that
    /// table, and the migrations run again. They leave existing tables and indexes as they are.
    pub(crate) fn version_table(&self) -> String {
        let own = self.dlq.as_ref().filter(|dlq| **dlq != format!("{}_dlq", self.table));
        self.qualified(&format!("_{}_migrations", own.unwrap_or(&self.table)))
    }

    /// A quoted name with its schema.
    pub(crate) fn qualified(&self, name: &str) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", quoted(schema), quoted(name)),
            None => quoted(name),
        }
    }
}

/// An environment variable. One that is not UTF-8 counts as set: as unset it would
/// silently mean something else.
pub(crate) fn variable(key: &str) -> Option<String> {
    std::env::var_os(key).map(|value| value.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_be_cut_or_refused_later_are_refused_now() {
        assert!(TableNames::new("").is_err());
        assert!(TableNames::new("a\0b").is_err());
        assert!(TableNames::new("t".repeat(42)).is_ok());
        assert!(TableNames::new("t".repeat(43)).is_err());
        assert!(TableNames::new("é".repeat(22)).is_err());
        assert!(TableNames::new("public.outbox").is_err());
        assert!(TableNames::default().with_dlq("public.outbox_dlq").is_err());
        assert!(TableNames::default().in_schema("shop.eu").is_ok());
        assert!(TableNames::new("sqlx").is_err());
        assert!(TableNames::default().with_dlq("SQLX").is_err());
        assert!(TableNames::default().in_schema("s".repeat(64)).is_err());
        assert!(TableNames::default().with_dlq("outbox").is_err());
        assert!(TableNames::default().with_dlq("d".repeat(47)).is_err());
    }
}
