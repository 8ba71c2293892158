//! Reads the environment once, and notes every mistake.

use std::sync::{Arc, Once};
use std::time::Duration;

use super::{App, Database};
use crate::store::names::{TableNames, told};

pub(super) fn from_lookup(get: impl Fn(&str) -> Option<String>) -> App {
    // A URL that stands in the wrong one is no value, and its password is not repeated.
    let plain = |key| get(key).map(|value| told(&value));
    let mut mistakes = Vec::new();
    let database = match get("DATABASE_URL") {
        Some(url) => database(&url, &mut mistakes),
        None => unset(&mut mistakes),
    };
    let (names, wrong) = TableNames::from_lookup(&get);
    mistakes.extend(wrong.iter().map(ToString::to_string));
    let mut app = App::new(database).names(names);
    if let Some(text) = plain("OUTBOX_DRAIN_TIMEOUT") {
        match crate::duration::parse(&text) {
            Ok(limit) => app.drain_timeout = limit,
            Err(error) => mistakes.push(format!(
                "`OUTBOX_DRAIN_TIMEOUT` is {text:?}, which is not a duration ({error}); write `15s`"
            )),
        }
    }
    if let Some(text) = plain("OUTBOX_QUEUE_GAUGES") {
        match crate::duration::parse(&text) {
            Ok(every) if every < Duration::from_secs(1) => mistakes.push(format!(
                "`OUTBOX_QUEUE_GAUGES` is {text:?}, but queues are looked at once a second at most; \
                 write `60s`"
            )),
            Ok(every) => {
                app.sample_every = Some(every);
                #[cfg(not(feature = "metrics"))]
                crate::telemetry::warn!(
                    target: crate::telemetry::TARGET,
                    "`OUTBOX_QUEUE_GAUGES` is set, but this program was built without the feature \
                     `metrics`: there are no gauges"
                );
            }
            Err(error) => mistakes.push(format!(
                "`OUTBOX_QUEUE_GAUGES` is {text:?}, which is not a duration ({error}); write `60s`"
            )),
        }
    }
    match plain("OUTBOX_ASYNC_SETTLES").as_deref() {
        None | Some("false") => {}
        Some("true") => app.async_settles = true,
        Some(text) => mistakes.push(format!(
            "`OUTBOX_ASYNC_SETTLES` is {text:?}, which is neither `true` nor `false`"
        )),
    }
    app.assumed = get("DATABASE_URL").is_none().then(|| Arc::new(Once::new()));
    app.mistakes = mistakes;
    app
}

/// A URL may hold a password, so no message repeats it.
fn database(url: &str, mistakes: &mut Vec<String>) -> Database {
    let database = match url.split(':').next() {
        _ if url.trim().is_empty() => Err("`DATABASE_URL` is empty; write \
             `postgres://user:password@host/database` or `sqlite:file.db`"
            .into()),
        Some("postgres" | "postgresql") => postgres(url),
        Some("sqlite") => sqlite(url),
        Some(scheme) if scheme.contains('+') => {
            Err("`DATABASE_URL` names a driver of another language: leave out the `+` and what \
             follows it, up to the colon"
                .into())
        }
        _ => Err("`DATABASE_URL` starts with neither `postgres://` nor `sqlite:`".into()),
    };
    database.unwrap_or_else(|mistake| {
        mistakes.push(mistake);
        Database::None
    })
}

#[cfg(feature = "postgres")]
fn postgres(url: &str) -> Result<Database, String> {
    Ok(Database::PostgresUrl(Box::new(super::url::options(url)?)))
}

/// What is wrong with a URL, in the driver's words and without the URL.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) fn cause(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Configuration(cause) => cause.to_string(),
        _ => "it cannot be read".into(),
    }
}

#[cfg(not(feature = "postgres"))]
fn postgres(_: &str) -> Result<Database, String> {
    Err("`DATABASE_URL` names PostgreSQL, but this program was built without the feature `postgres`"
        .into())
}

#[cfg(feature = "sqlite")]
fn sqlite(url: &str) -> Result<Database, String> {
    if is_spoilt(url) {
        return Err("`DATABASE_URL` names a SQLite file, but ends in white space, or contains a \
             line break, another control character or a character that is not UTF-8: that would \
             name another file than you mean; write `%20` for a space at the end of the name"
            .into());
    }
    match crate::store::sqlite::options(url) {
        Ok(_) if matches!(crate::store::sqlite::file_in(url), None | Some(":memory:")) => {
            Err("`DATABASE_URL` names no file, but other processes can find a SQLite database \
                 only by its file; write `sqlite:file.db`"
                .into())
        }
        Ok(options) if crate::store::sqlite::names_a_uri(&options) => {
            Err("`DATABASE_URL` names the file by `file:`; write the path itself: `sqlite:shop.db`"
                .into())
        }
        Ok(options) => Ok(Database::SqliteUrl(Box::new(options))),
        Err(error) => Err(format!(
            "`DATABASE_URL` is not a SQLite URL: {}; write `sqlite:file.db`",
            cause(&error)
        )),
    }
}

/// Such as a URL with the line break at the end of the file that it was read from.
#[cfg(feature = "sqlite")]
fn is_spoilt(url: &str) -> bool {
    // Bytes that are not UTF-8 were read as the replacement character.
    url.contains(|one: char| one.is_control() || one == char::REPLACEMENT_CHARACTER)
        || url.split('?').any(|part| part.ends_with(char::is_whitespace))
}

#[cfg(not(feature = "sqlite"))]
fn sqlite(_: &str) -> Result<Database, String> {
    Err("`DATABASE_URL` names SQLite, but this program was built without the feature `sqlite`"
        .into())
}

#[cfg(feature = "sqlite")]
fn unset(mistakes: &mut Vec<String>) -> Database {
    database("sqlite:outbox.db", mistakes)
}

#[cfg(not(feature = "sqlite"))]
fn unset(mistakes: &mut Vec<String>) -> Database {
    mistakes.push("`DATABASE_URL` is not set".into());
    Database::None
}

#[cfg(all(test, feature = "postgres", feature = "sqlite"))]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::extract::{State, Tx};
    use crate::subscriber::Subscriber;

    fn mistakes(set: &[(&str, &str)]) -> Vec<String> {
        let get =
            |key: &str| set.iter().find(|(name, _)| *name == key).map(|(_, v)| (*v).to_owned());
        from_lookup(get).mistakes
    }

    /// The mistake of the URL is enough.
    #[tokio::test]
    async fn of_a_wrong_url_no_handler_with_a_transaction_is_told() {
        let app = from_lookup(|key| (key == "DATABASE_URL").then(|| "mysql://h/db".to_owned()));
        let handler = |name| Subscriber::new(name, name, |_| async {});
        let lent = [
            handler("a").requires::<Tx<sqlx::Postgres>>(),
            handler("b").requires::<Tx<sqlx::Sqlite>>(),
            handler("c").requires::<State<u8>>(),
        ];
        let Err(Error::Launch(reasons)) = app.only(lent).start().await else { panic!("it runs") };
        assert_eq!(reasons.len(), 2, "{reasons:#?}");
        assert!(reasons[0].contains("`DATABASE_URL`"), "{reasons:#?}");
        assert!(reasons[1].contains("`State<u8>`"), "{reasons:#?}");
    }

    #[tokio::test]
    async fn both_databases_and_a_bare_environment_are_understood() {
        assert!(mistakes(&[("DATABASE_URL", "postgres://u@h/db")]).is_empty());
        assert!(mistakes(&[("DATABASE_URL", "sqlite:file.db")]).is_empty());
        assert!(mistakes(&[("DATABASE_URL", "sqlite:my café/file%20?mode=rwc")]).is_empty());
        assert!(mistakes(&[]).is_empty());
        assert_eq!(from_lookup(|_| None).drain_timeout, Duration::from_secs(15));
    }

    #[tokio::test]
    async fn settles_are_asynchronous_only_when_asked_for() {
        let asked = |value: Option<&str>| {
            let get = |key: &str| value.filter(|_| key == "OUTBOX_ASYNC_SETTLES").map(Into::into);
            from_lookup(get).async_settles
        };
        assert!(asked(Some("true")) && !asked(Some("false")) && !asked(None));
    }

    #[tokio::test]
    async fn other_names_keep_what_the_environment_says_and_they_leave_open() {
        let get = |key: &str| match key {
            "OUTBOX_DLQ_TABLE" => Some("dead".to_owned()),
            "OUTBOX_NOTIFY" => Some("never".to_owned()),
            "OUTBOX_PREPARED" => Some("false".to_owned()),
            _ => None,
        };
        let named = |names: TableNames| from_lookup(get).names(names).names;
        let orders = || TableNames::new("orders").unwrap();
        assert_eq!(named(orders()), orders().with_dlq("dead").unwrap().never_notify().unprepared());
        let complete = orders().with_dlq("lost").unwrap().always_notify();
        assert_eq!(named(complete.clone()), complete.unprepared());
        // A table with the name of its own dead-letter table is refused.
        let clash = from_lookup(get).names(TableNames::new("dead").unwrap());
        assert_eq!(clash.mistakes.len(), 1, "{:?}", clash.mistakes);
    }
}
