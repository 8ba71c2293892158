//! Errors of the library as a whole; publishing has its own, `PublishError`.

use std::error::Error as StdError;
use std::fmt;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use sqlx::error::DatabaseError;

/// Any error, boxed.
pub type BoxError = Box<dyn StdError + Send + Sync>;
/// A result with the library's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error of an app, a migration or a schema check.
///
/// `Debug` prints the same text as `Display`, because a `main` that returns an
/// error shows its `Debug` form.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The app cannot start; every reason is listed.
    #[error("the app cannot start:{}", List(.0))]
    Launch(Vec<String>),
    /// The environment or a builder call is wrong; every mistake is listed.
    #[error("the configuration is wrong:{}", List(.0))]
    Config(Vec<String>),
    /// `App::dry_run` did not try a dead letter. The text says why.
    #[error("{0}")]
    Untried(String),
    /// The tables are not as the library needs them. Every difference is listed
    /// with the SQL that mends it.
    #[error(transparent)]
    Schema(#[from] crate::schema::SchemaMismatch),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A message was not published.
    #[error(transparent)]
    Publish(#[from] crate::publish::PublishError),
    /// A startup or shutdown hook failed.
    #[error("the {hook} hook failed: {source}")]
    Hook {
        /// `startup` or `shutdown`.
        hook: &'static str,
        /// What the hook returned.
        source: BoxError,
    },
    /// A signal handler could not be installed.
    #[error("signals cannot be watched: {0}")]
    Signals(#[source] std::io::Error),
    /// The drain timeout passed while handlers still ran. The handlers were
    /// dropped. Their rows come back, except rows that
    /// [`AckFirst`](crate::AckPolicy) had acked, and those of which a word under `Manual` or a
    /// layer of a batch had said what becomes of them. Each message of a batch counts.
    ///
    /// A plain `fn` cannot be dropped. It goes on on its thread, and a tokio runtime waits for it when
    /// it ends, so `main` does not return before: [`std::process::exit`] does not wait.
    #[error(
        "handlers still running when the drain timeout passed: {0}; their messages come back, \
         unless they were acked first or it was said before what becomes of them"
    )]
    DrainTimeout(usize),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

struct List<'a>(&'a [String]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| write!(f, "\n  - {line}"))
    }
}

/// An error as texts and logs show it. The driver adds a line number to what PostgreSQL says. It
/// is left out: it counts in the server's own source, and looks like a line of the statement.
pub(crate) struct Told<'a>(pub(crate) &'a (dyn StdError + 'static));

impl fmt::Display for Told<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[cfg(feature = "postgres")]
        if let Some(sqlx::Error::Database(refused)) = self.0.downcast_ref()
            && refused.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some()
        {
            return write!(f, "error returned from database: {}", refused.message());
        }
        fmt::Display::fmt(self.0, f)
    }
}

/// A statement or a connection that failed.
///
/// `Debug` prints the same text as `Display`. A database's own error holds more, such as
/// the row that a constraint refused.
#[derive(thiserror::Error)]
#[error("{action}: {}", Told(&**source))]
#[allow(clippy::struct_excessive_bools, reason = "each is a thing of its own")]
pub struct StoreError {
    /// What was being done: "claim", "ack", ...
    pub action: &'static str,
    /// The driver's error.
    pub source: BoxError,
    /// True when the same call may succeed later, in a new transaction if it was in one of yours:
    /// after a lost connection, a deadlock or a busy file, on a standby, or while the server starts.
    /// If the database refused the call, nothing was written; if its answer was lost, the call may
    /// have taken effect. False when the database refused the call for good, so nothing was written,
    /// and in a transaction in which a statement has failed before.
    pub transient: bool,
    /// False when the call had no effect: there was no connection to send it over, or the
    /// database refused it.
    pub(crate) perhaps_done: bool,
    /// There was no connection to send the call over.
    pub(crate) unsent: bool,
    /// The server cancelled the statement, as with a `statement_timeout`.
    pub(crate) took_too_long: bool,
    /// Somebody else has a lock that the statement waited for.
    pub(crate) locked: bool,
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StoreError {
    pub(crate) fn new(action: &'static str, source: impl Into<BoxError>, transient: bool) -> Self {
        Self {
            action,
            source: source.into(),
            transient,
            perhaps_done: true,
            unsent: false,
            took_too_long: false,
            locked: false,
        }
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl StoreError {
    /// For `map_err` on a driver's result.
    pub(crate) fn of(action: &'static str) -> impl Fn(sqlx::Error) -> Self {
        move |error| {
            let cause = error.as_database_error().and_then(|refused| cause(action, refused));
            Self::explained(action, error, cause)
        }
    }

    /// As `of`, with an explanation that the driver cannot give.
    pub(crate) fn explained(
        action: &'static str,
        error: sqlx::Error,
        cause: Option<&'static str>,
    ) -> Self {
        let code = error.as_database_error().map(|refused| refused.code().unwrap_or_default());
        let transient = code.as_deref().is_none_or(passes) || wakes_no_more(&error);
        let perhaps_done = code.as_deref().is_none_or(|code| !is_refused(code));
        let took_too_long = code.as_deref() == Some("57014");
        let locked = matches!(code.as_deref(), Some("55P03" | "40P01"));
        let failed = match cause {
            Some(cause) => Self::new(action, Explained { source: error, cause }, transient),
            None => Self::new(action, error, transient),
        };
        Self { perhaps_done, took_too_long, locked, ..failed }
    }

    /// Whether the database refused the call with one of these codes.
    pub(crate) fn has_code(&self, codes: &[&str]) -> bool {
        let explained = || self.source.downcast_ref().map(|it: &Explained| &it.source);
        self.source.downcast_ref().or_else(explained).is_some_and(|error| has_code(error, codes))
    }

    /// Counts a full disk as lasting: other tables may have room, and must not wait for this one.
    #[cfg(feature = "postgres")]
    pub(crate) fn lasting_if_full(self) -> Self {
        Self { transient: self.transient && !self.has_code(&["53100"]), ..self }
    }
}

/// Whether the server takes no writes: it is a standby, or an old primary that came back as
/// one. Its address may lead to another server by now, but an open connection stays with it.
#[cfg(feature = "postgres")]
pub(crate) fn takes_no_writes(error: &sqlx::Error) -> bool {
    // The answers to a write, and to the begin of a transaction that may write.
    has_code(error, &["25006", "0A000"])
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn has_code(error: &sqlx::Error, codes: &[&str]) -> bool {
    let code = error.as_database_error().and_then(DatabaseError::code);
    code.is_some_and(|code| codes.contains(&&*code))
}

/// Whether a commit that notifies failed because the server's queue of notifications is full.
/// There is room again when the session that listens in an open transaction ends it.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn wakes_no_more(error: &sqlx::Error) -> bool {
    let refused = error.as_database_error();
    refused.is_some_and(|refused| is_from(refused, "54000", "PreCommit_Notify"))
}

/// Whether PostgreSQL refused with this code, in this function of its source. Its messages are
/// no help: they are in the language of the server.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn is_from(refused: &(dyn DatabaseError + 'static), code: &str, routine: &str) -> bool {
    #[cfg(feature = "postgres")]
    if let Some(refused) = refused.try_downcast_ref::<sqlx::postgres::PgDatabaseError>() {
        return refused.code() == code && refused.routine() == Some(routine);
    }
    let _ = (refused, code, routine);
    false
}

/// A driver's error, with an explanation that the database cannot give.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
#[derive(Debug, thiserror::Error)]
#[error("{}; {cause}", Told(source))]
struct Explained {
    source: sqlx::Error,
    cause: &'static str,
}

/// The explanation of an error that a database cannot give.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn cause(action: &str, refused: &(dyn DatabaseError + 'static)) -> Option<&'static str> {
    const OWNERS: [&str; 3] = ["migrate", crate::dlq::CUT, crate::dlq::DROP];
    const MIGRATE: &str = "make or upgrade the tables with `outbox migrate` \
        (`outbox::migrate(&pool)`); `outbox check` tells what is still missing then";
    // SQLite has one code for all of these.
    const MISSING: [&str; 3] = ["no such table", "no such column", "no such index"];
    let is_missing = || MISSING.iter().any(|what| refused.message().starts_with(what));
    Some(match &*refused.code()? {
        // A prepared statement exists already, or does not: the session is another one.
        "42P05" | "26000" => {
            "the connections go through a pooler in transaction mode: connect to the server \
             itself, or to a pool in session mode; a program that only publishes may set \
             OUTBOX_PREPARED=false (`TableNames::unprepared`)"
        }
        // The table or the column is not there.
        "42P01" | "42703" if action != "migrate" => MIGRATE,
        "1" if action != "migrate" && is_missing() => MIGRATE,
        "3F000" => "`CREATE SCHEMA` makes it; a migration makes only tables",
        "42501" if is_from(refused, "42501", "ExecWithCheckOptions") => {
            "a policy of row-level security refuses it (see docs/operations.md); `outbox check` \
             as the same role names the table"
        }
        "42501" if OWNERS.contains(&action) || refused.message().starts_with("must be owner") => {
            "only the owner of the tables can do this, and needs CREATE on their schema too; \
             run it as that role"
        }
        "42501" => "`outbox migrate --print-grants` prints what each role needs",
        "25006" if action != "ack" => {
            "the server is a standby, or `default_transaction_read_only` is on: name the server that \
             takes writes"
        }
        // By then the handler has ended, and said that it went well.
        "25P02" if matches!(action, "ack" | "commit") => {
            "a statement in the transaction of the handler failed before, and the handler has not \
             returned its error; what may fail goes into a savepoint"
        }
        _ => return None,
    })
}

/// Whether this code says that the database has not done what it was asked for. Each statement
/// is a transaction. One whose session ended, or whose disk failed, may have taken effect.
fn is_refused(code: &str) -> bool {
    match code.len() {
        // A statement that was cancelled has not committed.
        5 => code == "57014" || !["08", "57", "58"].iter().any(|class| code.starts_with(class)),
        _ => code.parse::<u32>().is_ok_and(|code| !matches!(code & 0xff, 10 | 13)),
    }
}

/// Whether a database's error code names a condition that passes by itself.
fn passes(code: &str) -> bool {
    match code.len() {
        // In a transaction in which a statement has failed every further one fails, and begun anew
        // it would come to the same statement.
        5 if code == "25P02" => false,
        // PostgreSQL: connection, read-only transaction (a standby), rollback
        // (deadlock, serialization), resources, lock not available, operator, system.
        5 => ["08", "25", "40", "53", "55", "57", "58"].iter().any(|of| code.starts_with(of)),
        // SQLite's extended code: the low byte is BUSY (5), LOCKED (6), NOMEM (7), IOERR (10),
        // FULL (13), CANTOPEN (14: no descriptor is left) or PROTOCOL (15: a race for the log).
        _ => code.parse::<u32>().is_ok_and(|code| matches!(code & 0xff, 5 | 6 | 7 | 10 | 13..=15)),
    }
}

#[cfg(all(test, any(feature = "postgres", feature = "sqlite")))]
pub(crate) mod tests {
    use std::borrow::Cow;
    use std::fmt;

    use sqlx::error::{DatabaseError, ErrorKind};

    use super::{BoxError, StdError, StoreError, is_refused, passes};

    /// As a database says it, with this code.
    #[derive(Debug)]
    pub(crate) struct Refused(pub(crate) &'static str);

    impl fmt::Display for Refused {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.message())
        }
    }

    impl StdError for Refused {}

    impl DatabaseError for Refused {
        fn message(&self) -> &'static str {
            "no such statement"
        }

        fn code(&self) -> Option<Cow<'_, str>> {
            Some(self.0.into())
        }

        fn as_error(&self) -> &(dyn StdError + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn StdError + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> BoxError {
            self
        }

        fn kind(&self) -> ErrorKind {
            ErrorKind::Other
        }
    }

    #[test]
    fn an_error_that_is_explained_keeps_the_driver_s_in_its_chain() {
        for code in ["42P05", "26000", "42601"] {
            let failed = StoreError::of("claim")(sqlx::Error::Database(Box::new(Refused(code))));
            let text = failed.to_string();
            assert!(text.starts_with("claim: ") && text.contains("no such statement"), "{text}");
            assert_eq!(text.contains("a pooler in transaction mode"), code != "42601", "{text}");
            let first: Option<&(dyn StdError + 'static)> = Some(&failed);
            let mut chain = std::iter::successors(first, |error| (*error).source());
            let driver = chain.find_map(|error| error.downcast_ref::<sqlx::Error>());
            let told = driver.and_then(sqlx::Error::as_database_error).expect("the driver's");
            assert_eq!(told.code().as_deref(), Some(code));
        }
    }

    #[test]
    fn what_is_refused_was_not_done_and_what_lost_its_session_may_have_been() {
        // A deadlock, a lock that is held, a standby, a full server; a busy file.
        // And a statement that was cancelled.
        for code in
            ["40P01", "55P03", "25006", "53300", "57014", "5", "261", "517", "7", "14", "15"]
        {
            assert!(passes(code) && is_refused(code), "{code}");
        }
        // For good: a constraint, a transaction that has failed, a file that is none.
        for code in ["23505", "25P02", "1811", "26"] {
            assert!(!passes(code) && is_refused(code), "{code}");
        }
        // The server ends, the session was ended; an error of the disk, a full one.
        for code in ["57P01", "08006", "58030", "10", "1034", "13"] {
            assert!(passes(code) && !is_refused(code), "{code}");
        }
    }
}
