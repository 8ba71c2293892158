//! Environment variables that are probably meant for this library, and that nothing reads.

use super::{App, DRAIN_TIMEOUT};
#[cfg(feature = "postgres")]
use crate::store::names::Notify;
use crate::store::names::{TableNames, variable};

const READ: [&str; 8] = [
    "OUTBOX_TABLE",
    "OUTBOX_SCHEMA",
    "OUTBOX_DLQ_TABLE",
    "OUTBOX_NOTIFY",
    "OUTBOX_PREPARED",
    "OUTBOX_DRAIN_TIMEOUT",
    "OUTBOX_QUEUE_GAUGES",
    "OUTBOX_ASYNC_SETTLES",
];
#[cfg(feature = "postgres")]
const NAMED: &str = ".names(TableNames::from_env()?)";
/// How many letters may be wrong.
const EDITS: usize = 2;

/// Warns of each such variable: a program that sets `OUTBOX_DLQ` has no dead-letter table, and
/// its messages that fail for good are deleted.
pub(super) fn warn() {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if let Some(meant) = meant(&name) {
            crate::telemetry::warn!(
                target: crate::telemetry::TARGET,
                "`{name}` is set, but nothing reads it; did you mean `{meant}`?"
            );
        }
    }
}

/// The same for an app that was given its pool, and what the environment says that it does not do.
pub(super) fn warn_given(app: &App) {
    warn();
    warn_of_names(&app.names);
    warn_of_settings(app);
}

/// Warns an app that was given its pool when the environment names another table than the app
/// reads. `outbox::publish` writes to that table, and nobody reads it.
fn warn_of_names(names: &TableNames) {
    if let Some(other) = unheeded(names, TableNames::from_lookup(variable)) {
        crate::telemetry::warn!(
            target: crate::telemetry::TARGET,
            "the environment names the table {other}, to which `outbox::publish` writes, but this \
             app reads {}: `.names(TableNames::from_env()?)` makes it read the environment's table",
            names.qualified(names.table())
        );
    }
}

/// Warns an app that was given its pool of variables that are set: it reads none of them.
fn warn_of_settings(app: &App) {
    for (name, call) in unread(app, variable) {
        crate::telemetry::warn!(
            target: crate::telemetry::TARGET,
            "`{name}` is set, but an app that is given its pool does not read it: call `{call}`"
        );
    }
}

/// Variables that say something else than an app does by default, each with the call that
/// would do what it says. A setting that a call has made is not listed: the call counts.
fn unread(
    app: &App,
    get: impl Fn(&str) -> Option<String>,
) -> impl Iterator<Item = (&'static str, &'static str)> {
    let limit = |text: &str| crate::duration::parse(text);
    let (names, is_server) = (&app.names, !app.database.is_sqlite());
    let gauges = cfg!(feature = "metrics") && app.sample_every.is_none();
    let by_default = [
        ("OUTBOX_DLQ_TABLE", ".dlq(..)", names.dlq().is_none()),
        ("OUTBOX_DRAIN_TIMEOUT", ".drain_timeout(..)", app.drain_timeout == DRAIN_TIMEOUT),
        ("OUTBOX_QUEUE_GAUGES", ".queue_gauges(..)", gauges),
        ("OUTBOX_ASYNC_SETTLES", ".async_settles(true)", is_server && !app.async_settles),
        #[cfg(feature = "postgres")]
        ("OUTBOX_NOTIFY", NAMED, is_server && names.notify() == Notify::Asleep),
        #[cfg(feature = "postgres")]
        ("OUTBOX_PREPARED", NAMED, is_server && names.is_prepared()),
    ];
    let unread = by_default.into_iter().filter(move |(name, _, is_default)| {
        let says_so = |text: String| match *name {
            "OUTBOX_DRAIN_TIMEOUT" => limit(&text).is_ok_and(|it| it == DRAIN_TIMEOUT),
            "OUTBOX_ASYNC_SETTLES" => text == "false",
            "OUTBOX_NOTIFY" => text == "asleep",
            "OUTBOX_PREPARED" => text == "true",
            _ => false,
        };
        *is_default && get(name).is_some_and(|text| !says_so(text))
    });
    unread.map(|(name, call, _)| (name, call))
}

fn unheeded<E>(names: &TableNames, (of, _): (TableNames, E)) -> Option<String> {
    let place = |names: &TableNames| names.qualified(names.table());
    // An app that names tables means them. The schema `public` is where the search path leads most
    // often.
    let is_default = place(names) == place(&TableNames::default());
    let is_other = of.table() != names.table() || of.schema().is_some_and(|it| it != "public");
    (is_default && is_other).then(|| place(&of))
}

fn meant(name: &str) -> Option<&'static str> {
    let ours = |rest: &&str| !rest.is_empty() && !READ.contains(&name);
    let rest = name.strip_prefix("OUTBOX_").filter(ours)?;
    if ["DATABASE_URL", "URL"].contains(&rest) {
        return Some("DATABASE_URL");
    }
    let is_like = |one: &&&str| {
        one.starts_with(name) || name.starts_with(**one) || strsim::levenshtein(one, name) <= EDITS
    };
    READ.iter().find(is_like).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::Database;

    #[test]
    fn a_table_of_the_environment_that_the_app_does_not_read_is_noticed() {
        let of = |table: &str| (TableNames::new(table).unwrap(), ());
        let default = TableNames::default();
        assert_eq!(unheeded(&default, of("events")).as_deref(), Some("\"events\""));
        assert_eq!(unheeded(&default, of("outbox")), None);
        let within = |schema: &str| (TableNames::default().in_schema(schema).unwrap(), ());
        assert_eq!(unheeded(&default, within("public")), None);
        assert_eq!(unheeded(&default, within("shop")).as_deref(), Some("\"shop\".\"outbox\""));
        assert_eq!(unheeded(&TableNames::new("jobs").unwrap(), of("events")), None);
    }

    #[test]
    fn a_setting_of_the_environment_that_the_app_does_not_read_is_noticed() {
        let unread = |app: &App, set: &[(&str, &str)]| -> Vec<&str> {
            let get =
                |key: &str| set.iter().find(|(name, _)| *name == key).map(|(_, it)| (*it).into());
            unread(app, get).map(|(name, _)| name).collect()
        };
        let (dlq, drain) = (("OUTBOX_DLQ_TABLE", "dead"), ("OUTBOX_DRAIN_TIMEOUT", "60s"));
        let app = App::new(Database::None);
        assert_eq!(unread(&app, &[dlq, drain]), [dlq.0, drain.0]);
        let gauges = [("OUTBOX_QUEUE_GAUGES", "60s")];
        assert_eq!(unread(&app, &gauges).len(), usize::from(cfg!(feature = "metrics")));
        let as_it_is = [
            ("OUTBOX_DRAIN_TIMEOUT", "15s"),
            ("OUTBOX_ASYNC_SETTLES", "false"),
            ("OUTBOX_NOTIFY", "asleep"),
            ("OUTBOX_PREPARED", "true"),
        ];
        assert_eq!(unread(&app, &as_it_is), [""; 0]);
        let async_settles = [("OUTBOX_ASYNC_SETTLES", "true")];
        assert_eq!(unread(&app, &async_settles), [async_settles[0].0]);
        let told = app.dlq("lost").drain_timeout(std::time::Duration::from_secs(5));
        assert_eq!(unread(&told, &[dlq, drain]), [""; 0]);
        #[cfg(feature = "postgres")]
        {
            let publishes = [("OUTBOX_NOTIFY", "always"), ("OUTBOX_PREPARED", "false")];
            let app = || App::new(Database::None);
            assert_eq!(unread(&app(), &publishes), publishes.map(|(name, _)| name));
            let told = TableNames::default().always_notify().unprepared();
            assert_eq!(unread(&app().names(told), &publishes), [""; 0]);
        }
    }

    #[test]
    fn what_is_misspelt_or_cut_short_is_noticed_and_a_variable_of_others_is_not() {
        assert_eq!(meant("OUTBOX_DLQ"), Some("OUTBOX_DLQ_TABLE"));
        assert_eq!(meant("OUTBOX_TABEL"), Some("OUTBOX_TABLE"));
        assert_eq!(meant("OUTBOX_SCHEMA_NAME"), Some("OUTBOX_SCHEMA"));
        assert_eq!(meant("OUTBOX_DATABASE_URL"), Some("DATABASE_URL"));
        for other in ["OUTBOX_TABLE", "OUTBOX_", "OUTBOX_COLOUR", "OUTBOX", "DATABASE_URL"] {
            assert_eq!(meant(other), None);
        }
    }
}
