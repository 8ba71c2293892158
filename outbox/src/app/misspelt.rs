//! Variables of the environment that are probably meant for us and are not read.

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
/// Letters that may be wrong.
const EDITS: usize = 2;

/// Warns of each: the dead letters of a program that sets `OUTBOX_DLQ` are deleted.
pub(super) fn warn() {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if let Some(meant) = meant(&name) {
            tracing::warn!(
                target: crate::telemetry::TARGET,
                "`{name}` is set, and nothing reads it; is `{meant}` meant?"
            );
        }
    }
}

/// Warns where the environment names other tables than an app that was given its pool: what
/// is published by `outbox::publish` lies there, and nobody reads it.
pub(super) fn warn_of_names(names: &TableNames) {
    if let Some(other) = unheeded(names, TableNames::from_lookup(variable)) {
        tracing::warn!(
            target: crate::telemetry::TARGET,
            "the environment names the table {other}, where `outbox::publish` writes; this app reads \
             {}: `.names(TableNames::from_env()?)` takes the environment's",
            names.qualified(names.table())
        );
    }
}

fn unheeded<E>(names: &TableNames, (of, _): (TableNames, E)) -> Option<String> {
    let place = |names: &TableNames| names.qualified(names.table());
    // Whoever has named them means them. The schema `public` is where the path leads most often.
    let is_default = place(names) == place(&TableNames::default());
    let is_other = of.table() != names.table() || of.schema().is_some_and(|it| it != "public");
    (is_default && is_other).then(|| place(&of))
}

fn meant(name: &str) -> Option<&'static str> {
    let ours = |rest: &&str| !rest.is_empty() && !READ.contains(&name);
    name.strip_prefix("OUTBOX_").filter(ours)?;
    let is_like = |one: &&&str| {
        one.starts_with(name) || name.starts_with(**one) || strsim::levenshtein(one, name) <= EDITS
    };
    READ.iter().find(is_like).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_is_misspelt_or_cut_short_is_noticed_and_a_variable_of_others_is_not() {
        assert_eq!(meant("OUTBOX_DLQ"), Some("OUTBOX_DLQ_TABLE"));
        assert_eq!(meant("OUTBOX_TABEL"), Some("OUTBOX_TABLE"));
        assert_eq!(meant("OUTBOX_SCHEMA_NAME"), Some("OUTBOX_SCHEMA"));
        for other in ["OUTBOX_TABLE", "OUTBOX_", "OUTBOX_COLOUR", "OUTBOX", "DATABASE_URL"] {
            assert_eq!(meant(other), None);
        }
    }
}
